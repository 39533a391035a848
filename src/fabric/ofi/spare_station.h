// A station that is opened ahead, in a thread of its own. Opening one takes a socket provider
// milliseconds, since it writes all of its buffers; the engine's thread would serve no rail
// meanwhile, and a link that breaks would slow the others.
#pragma once

#include <atomic>
#include <optional>
#include <thread>

#include "fabric/ofi/station.h"

namespace braid::fabric::ofi {

/// Used by one thread at a time.
class SpareStation {
 public:
  /// Opens nothing yet. `provider` outlives this object.
  explicit SpareStation(const Provider& provider) : provider_(provider) {}
  ~SpareStation();
  SpareStation(const SpareStation&) = delete;
  SpareStation& operator=(const SpareStation&) = delete;

  /// The spare station, or one that is opened now if it is not ready. The next one is opened
  /// meanwhile.
  Result<Station> take();
  /// `take` waits for no opening, or only because the one ahead has failed.
  bool is_ready() const { return is_ready_; }

 private:
  void begin();

  const Provider& provider_;
  std::optional<Station> spare_;        // the thread's until it is ready
  std::atomic<bool> is_ready_ = false;  // the thread has ended; there is none if that failed
  std::thread thread_;
};

}  // namespace braid::fabric::ofi
