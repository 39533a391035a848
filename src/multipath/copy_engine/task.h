// One transfer on its way through the copy-engine mover (the paper's Transfer Task), from a pool
// that is allocated once. The submitting thread fills it in and hands it to the scheduler's thread,
// which hands it back when the gate is open.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "multipath/copy_engine/dispatch.h"
#include "multipath/copy_engine/pieces.h"
#include "multipath/copy_engine/station.h"
#include "multipath/transfer.h"

namespace braid::multipath::copy_engine {

/// What one path of a transfer has carried.
struct Carried {
  uint64_t slices = 0;
  uint64_t bytes = 0;
};

struct Task {
  uint32_t id = 0;          ///< index into the pool: names its words in every station
  uint32_t generation = 0;  ///< of its last use, in its words
  bool is_taken = false;
  bool is_retired = false;  ///< its start may be announced by a call that was given up: not reused

  Station* target = nullptr;
  Direction direction = Direction::kHostToDevice;
  Priority priority = Priority::kBulk;
  std::span<Piece> pieces;
  uint64_t size_bytes = 0;
  std::array<Station*, kMaxGpus> relays{};  ///< in order of preference
  int relay_count = 0;

  // The scheduler's.
  uint64_t landed_bytes = 0;
  bool has_failed = false;
  std::array<Carried, kMaxGpus> carried{};  ///< by GPU
};

}  // namespace braid::multipath::copy_engine
