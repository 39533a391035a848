#include "fabric/ofi/opening.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace braid::fabric::ofi {
namespace {

// Threads may still read these when everything else has been destroyed.
std::atomic<int> under_way = 0;
std::atomic<bool> has_ended = false;

/// Destroyed before libfabric, which is loaded before anything is opened.
class End {
 public:
  ~End() {
    has_ended = true;
    constexpr int kTriesMax = 30'000;
    for (int tries = 0; under_way > 0 && is_here() && tries < kTriesMax; ++tries)
      std::this_thread::sleep_for(std::chrono::microseconds(100));
  }

 private:
  /// False in a child process, which has none of the threads that count themselves.
  bool is_here() const { return getpid() == process_; }

  const pid_t process_ = getpid();
};

}  // namespace

Opening::Opening() {
  static const End end;
  ++under_way;
  may_go_on_ = !has_ended;
}

Opening::~Opening() { --under_way; }

}  // namespace braid::fabric::ofi
