// braid and others in turns: the same writes, between the same memory of two processes
// each, all bytes verified in every turn. The clock of a turn stops when all bytes have been seen
// at the target.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/fabric/peer_program.h"
#include "bench/fabric/target_process.h"

namespace braid::bench {

struct RaceOptions {
  Rails rails;
  Pattern pattern = Pattern::kSingle;
  bool is_against_plain = true;
  bool is_against_engine = false;
  bool are_pages_huge = false;
  std::vector<PeerCommand> peers;
  std::vector<uint64_t> sizes_bytes;  ///< of writes, pages or parts; of barriers: 0
  int turns = 7;
  double turn_seconds = 0.2;  ///< of braid's, about
};

/// Medians, and the range of all turns.
struct Spread {
  double median = 0, least = 0, most = 0;
};

struct Opponent {
  std::string name;
  Spread rate;   ///< writes, pages, parts or barriers a second
  Spread ratio;  ///< of braid's to its own, turn by turn
  bool is_verified = true;
};

struct RaceResult {
  uint64_t size_bytes = 0;
  Spread braid_rate;
  bool is_verified = true;  ///< braid's bytes
  std::vector<Opponent> opponents;
};

struct RaceReport {
  std::vector<RaceResult> results;  ///< for each size
  std::vector<Waiver> waivers;
};

/// Of a write, a page or a part.
uint64_t largest_size_bytes(Pattern pattern);

/// Called before each turn.
using Progress = std::function<void(uint64_t size_bytes, int turn)>;

/// Forks: to be called before libfabric is loaded, by a process of one thread. An error if braid
/// itself cannot take part. A peer that fails is named in the report, and the others go on.
Result<RaceReport> race(const RaceOptions& options, const Progress& progress);

}  // namespace braid::bench
