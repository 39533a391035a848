// What a leader and a worker tell each other, as bytes: commands for a rank, and its reports
// (remote_rank.h, rank_worker.h). The caller carries them.
//
// Commands are numbered from 1; a worker carries out each number once, in order. A report holds all
// that the rank has done so far, so that a later one replaces it. Both name their group and rank.
// Little endian. Bytes that were cut short or changed on the way are refused, as are those of
// another version. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "kv/copier.h"
#include "kv/rank.h"

namespace braid::kv {

/// What leader and worker must have in common.
struct GroupShape {
  uint32_t gpu_slots = 0;
  uint32_t host_slots = 0;
  uint64_t block_bytes = 0;  ///< of one rank
  bool operator==(const GroupShape&) const = default;
};

struct Commands {
  uint64_t group = 0;  ///< a number that the leader has drawn
  uint32_t rank = 0;
  GroupShape shape{};
  uint64_t number = 0;
  uint64_t report_seen = 0;  ///< the latest report that the leader's caller has polled
  Mark step = 0;             ///< the step that the rank launches next; 0: none
  std::vector<CopyBatch> batches{};
  Marks compute_after{};  ///< the compute stream comes behind these, once the batches are enqueued

  bool operator==(const Commands&) const = default;
};

struct RankReport {
  uint64_t group = 0;  ///< 0: the worker has had no commands
  uint32_t rank = 0;
  uint64_t number = 0;
  uint64_t commands_done = 0;  ///< the latest
  Marks passed{};
  std::vector<FailedBatch> failed{};  ///< until a report that names them was polled
  std::string broken{};               ///< why the rank carries out nothing any more; empty: it does
  int32_t cuda_result = 0;            ///< of `broken`
  Carried carried{};

  bool operator==(const RankReport&) const = default;
};

std::vector<std::byte> encode(const Commands& commands);
std::vector<std::byte> encode(const RankReport& report);
Result<Commands> decode_commands(std::span<const std::byte> bytes);
Result<RankReport> decode_report(std::span<const std::byte> bytes);

}  // namespace braid::kv
