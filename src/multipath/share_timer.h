// Measures how long a relay takes for its share of a copy. Braid plans with idle links, and only
// this time shows that another program uses a link. One copy at a time is timed, by two events in
// the relay's own context. It must be alone on the relay from beginning to end: otherwise braid's
// own copies delay it.
//
// Threads: any; nothing locks. Time is the GPU's.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "base/status.h"
#include "cuda/driver.h"
#include "multipath/channel.h"
#include "multipath/transfer.h"

namespace braid::multipath {

/// The timed share, and the time to compare it with.
struct TimedShare {
  Direction direction = Direction::kHostToDevice;
  uint64_t sequence = 0;  ///< of the copy, among the relay's
  double native_us = 0;   ///< the whole copy, over the target's own link
};

class ShareTimer {
 public:
  explicit ShareTimer(const cuda::Driver& driver) : driver_(driver) {}

  /// Makes both events in the relay's context.
  Status open();
  void close();

  /// Begins at this place in the channel, unless another share is being timed. True: `end` must
  /// follow.
  bool begin(const Channel& channel, const TimedShare& share);
  /// Call it before the channel signals that the share has landed.
  void end(const Channel& channel);

  struct Reading {
    Direction direction;
    bool is_late;  ///< the share took clearly longer than the whole native copy would
  };
  /// The result, once. `sequence`: of the relay's newest copy.
  std::optional<Reading> read(uint64_t sequence);

 private:
  enum class State { kFree, kInUse, kRuns };

  const cuda::Driver& driver_;
  CUevent begin_ = nullptr;
  CUevent end_ = nullptr;
  std::atomic<State> state_{State::kFree};
  TimedShare share_;
  const uint32_t* landed_ = nullptr;
  uint32_t landed_at_ = 0;  // when the word has this value, both events have happened
};

}  // namespace braid::multipath
