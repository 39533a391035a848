#include "preload/helper.h"

#include <atomic>
#include <cstdlib>

#include "preload/access.h"
#include "preload/engine_thread.h"
#include "preload/messages.h"
#include "preload/state.h"

namespace braid::preload {
namespace {

constexpr std::chrono::seconds kLongestStep{10};

constexpr EngineThread::Events kEvents{grant_memory_made_so_far, say_once, []() noexcept {
                                         give_engine_up("out of memory while opening relays");
                                       }};

// Null when there is no engine any more, or no memory.
EngineThread* helper() noexcept try {
  static EngineThread* const instance =
      engine() != nullptr
          ? new EngineThread(*engine(), kEvents)  // owner: the process, until its end
          : nullptr;
  return instance;
} catch (...) {
  return nullptr;
}

void serve(void* thread) {
  const ReentryGuard guard;
  static_cast<EngineThread*>(thread)->serve();
}

constinit std::atomic<EngineThread*> running{nullptr};

}  // namespace

void end_helper() noexcept {
  if (EngineThread* thread = running.exchange(nullptr)) thread->end(kLongestStep);
}

bool start_helper() noexcept {
  static const bool has_thread = [] {
    EngineThread* thread = helper();
    if (thread == nullptr) return false;
    running = thread;         // a thread of the program's may open relays instead
    std::atexit(end_helper);  // after the driver's own handlers were, and so called before them
    return thread->start(serve);
  }();
  return has_thread;
}

void open_relays(Opening when) noexcept {
  if (engine() == nullptr) return;
  static constinit std::atomic<bool> has_begun{false};
  if (has_begun.exchange(true)) return wake_helper();
  const bool has_thread = start_helper();
  // The engine stays: it holds primary contexts, which it lets go when the program does.
  if (!has_thread && when == Opening::kInBackground)
    return say_once(
        "the process may not have another thread to open relays with. Every copy stays native");
  if (when == Opening::kNow && helper() != nullptr) {
    const ReentryGuard guard;
    helper()->open_relays();
  }
  wake_helper();
}

void wake_helper() noexcept {
  if (EngineThread* thread = running.load()) thread->wake();
}

}  // namespace braid::preload
