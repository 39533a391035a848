// A stream of braid's whose progress the CPU sees without asking the driver: behind every piece of
// work the stream writes a number into host memory (cuStreamWriteValue32: seen after 3.8 us on
// 4xH200, where a query of an event costs a driver call each time).
//
// Nothing in these streams waits for anything but its own bytes: no event, no value. So a stream
// that shares a hardware queue with one of them is never held up for longer than a slice takes.
// The scheduler's thread uses a line alone. Its context must be current for `mark`.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "cuda/driver.h"

namespace braid::multipath::copy_engine {

class Line {
 public:
  enum class Progress {
    kPending,
    kPassed,  ///< the work has ended
    kDead,    ///< the stream's context has failed: the work will not go on
  };

  /// In the current context. `word` is pinned host memory, zero, for this line alone.
  Status open(const cuda::Driver& driver, int priority, uint32_t* word);
  void close();

  CUstream stream() const { return stream_; }

  /// The number that stands for everything enqueued so far. If the driver refuses the write, the
  /// stream itself is asked from then on.
  uint32_t mark();

  /// Whether the work that `number` stands for has ended. Reads memory only, unless it had to be
  /// said otherwise (`mark`) or the stream has been found dead.
  Progress progress(uint32_t number);

  /// Asks the driver too: for work that is late. Finds contexts that have failed.
  Progress inquire(uint32_t number);

 private:
  const cuda::Driver* driver_ = nullptr;
  CUstream stream_ = nullptr;
  uint32_t* word_ = nullptr;
  uint32_t marked_ = 0;
  uint32_t passed_ = 0;  // as far as the stream itself has been asked
  bool is_blind_ = false;
  bool is_dead_ = false;
};

}  // namespace braid::multipath::copy_engine
