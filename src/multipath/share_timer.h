// How long a relay took for its share of a copy. braid plans with idle links; a link that another
// program uses shows only in this. One copy at a time is timed, by two events in the relay's own
// context, and only one that was alone on the relay from its beginning to its end: otherwise
// braid's own copies are what made it late.
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

/// What is timed, and what it is held against.
struct TimedShare {
  Direction direction = Direction::kHostToDevice;
  uint64_t sequence = 0;  ///< of the copy, among the relay's
  double native_us = 0;   ///< the whole copy, over the target's own link
};

class ShareTimer {
 public:
  explicit ShareTimer(const cuda::Driver& driver) : driver_(driver) {}

  /// Both in the relay's context.
  Status open();
  void close();

  /// From here on in the channel, unless another share is being timed. True: `end` must follow.
  bool begin(const Channel& channel, const TimedShare& share);
  /// Before the channel says that the share has landed.
  void end(const Channel& channel);

  struct Reading {
    Direction direction;
    bool is_late;  ///< the share alone took clearly longer than the whole copy would have natively
  };
  /// What was found, once. `sequence`: of the relay's newest copy.
  std::optional<Reading> read(uint64_t sequence);

 private:
  enum class State { kFree, kInUse, kRuns };

  const cuda::Driver& driver_;
  CUevent begin_ = nullptr;
  CUevent end_ = nullptr;
  std::atomic<State> state_{State::kFree};
  TimedShare share_;
  const uint32_t* landed_ = nullptr;
  uint32_t landed_at_ = 0;  // when the word says so, both events have happened
};

}  // namespace braid::multipath
