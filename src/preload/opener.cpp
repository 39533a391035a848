#include "preload/opener.h"

#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <semaphore>
#include <thread>

#include "multipath/thread.h"
#include "preload/lifecycle.h"
#include "preload/runtime.h"

namespace braid::preload {
namespace {

struct Opener {
  multipath::Thread thread;
  std::atomic<bool> has_begun{false};
  std::atomic<bool> stops{false};
  std::binary_semaphore ended{0};
  pid_t pid = 0;  // a child that was forked has no such thread
};

Opener& opener() {
  static Opener& instance = *new Opener;  // owner: the process, until its end
  return instance;
}

// For threads that are about to end a primary context, and wait for the one that is being made.
constexpr std::chrono::milliseconds kTurnOfOthers{1};
constexpr std::chrono::seconds kLongestStep{10};

void open_all(void*) {
  const Inside inside;
  while (!opener().stops && open_next_relay()) std::this_thread::sleep_for(kTurnOfOthers);
  opener().ended.release();
}

void stop() noexcept {
  if (opener().pid != getpid() || opener().stops.exchange(true)) return;
  if (opener().ended.try_acquire_for(kLongestStep)) opener().thread.join();
}

}  // namespace

void open_relays(Opening when) noexcept {
  if (opener().has_begun.exchange(true)) return;
  opener().pid = getpid();
  std::atexit(stop);  // after the driver's own handlers were, and so called before them
  if (when == Opening::kNow)
    open_all(nullptr);
  else if (!opener().thread.start(open_all, nullptr))
    give_engine_up("the process may not have another thread to open relays with");
}

}  // namespace braid::preload
