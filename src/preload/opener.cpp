#include "preload/opener.h"

#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "multipath/thread.h"
#include "preload/lifecycle.h"
#include "preload/runtime.h"

namespace braid::preload {
namespace {

struct Opener {
  multipath::Thread thread;
  std::atomic<bool> stops{false};
  pid_t pid = 0;  // a child that was forked has no such thread
};

Opener& opener() {
  static Opener& instance = *new Opener;  // owner: the process, until its end
  return instance;
}

// For threads that are about to end a primary context, and wait for the one that is being made.
constexpr std::chrono::milliseconds kTurnOfOthers{1};

void open_all(void*) {
  const Inside inside;
  while (!opener().stops && open_next_relay()) std::this_thread::sleep_for(kTurnOfOthers);
}

void stop() noexcept {
  if (opener().pid != getpid() || opener().stops.exchange(true)) return;
  opener().thread.join();
}

}  // namespace

void open_relays(Opening when) noexcept {
  if (when == Opening::kInBackground) {
    opener().pid = getpid();
    std::atexit(stop);  // after the driver's own handlers were, and so called before them
    if (opener().thread.start(open_all, nullptr)) return;
  }
  open_all(nullptr);
}

}  // namespace braid::preload
