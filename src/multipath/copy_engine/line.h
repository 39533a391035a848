// A stream of braid's whose progress the CPU sees without asking the driver: behind every piece of
// work a number is written into host memory (cuStreamWriteValue32: seen after 3.8 us on H200, where
// a query of an event costs a driver call each time).
//
// A stream that writes the number itself stops its copy engine for 4 us after each slice; one
// beside it, which waits for an event of the first, does not. Measured on 2xH200, slices of 4 MB
// queued in advance, GB/s of one link: no numbers 53.6 and 53.3 (host to device and back), written
// beside 53.6 and 53.2, by the stream itself 51.4 and 51.1.
//
// Nothing in these streams waits for anything but the line's own bytes. So a stream that shares a
// hardware queue with one of them is never held up for longer than what is queued takes.
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

  /// Which stream writes the numbers.
  enum class Writer : uint8_t { kItself, kBeside };

  /// In the current context. `word` is pinned host memory for this line alone; numbers go on from
  /// what it holds, and wrap.
  Status open(const cuda::Driver& driver, int priority, uint32_t* word, Writer writer);
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
  bool write(uint32_t number);

  const cuda::Driver* driver_ = nullptr;
  CUstream stream_ = nullptr;
  CUstream beside_ = nullptr;  // null: the stream itself writes
  CUevent end_ = nullptr;      // of the latest work, for the one beside
  uint32_t* word_ = nullptr;
  uint32_t marked_ = 0;
  uint32_t passed_ = 0;  // as far as has been seen
  bool is_blind_ = false;
  bool is_dead_ = false;
};

}  // namespace braid::multipath::copy_engine
