#include "fabric/library/events.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "fabric/thread.h"

namespace braid::fabric {
namespace {

struct Item {
  Sink sink;
  braid_fabric_event event;
  std::shared_ptr<Merged> merged;
  bool is_last = false;  // of its request
};

}  // namespace

struct Events::State {
  explicit State(int opened) : descriptor(opened) {}
  ~State() { ::close(descriptor); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  const int descriptor;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Item> to_call;
  std::deque<Item> to_take;
  std::shared_ptr<Merged> running;  // whose callback runs
  std::thread thread;
  std::thread::id thread_id;
  bool is_closed = false;

  void queue(Item item) {
    const bool is_called = item.sink.callback != nullptr;
    (is_called ? to_call : to_take).push_back(std::move(item));
    if (is_called)
      changed.notify_all();
    else
      make_readable(true);
  }

  /// The next event that is still to be delivered.
  std::optional<Item> next(std::deque<Item>& items) {
    while (!items.empty()) {
      Item item = std::move(items.front());
      items.pop_front();
      if (!item.merged) return item;
      Merged& merged = *item.merged;
      merged.is_queued = false;
      const bool is_news =
          item.event.kind != BRAID_FABRIC_EVENT_WORD || merged.told != merged.latest;
      item.event.old_value = merged.told;
      item.event.value = merged.latest;
      merged.told = merged.latest;
      if (!merged.is_released && is_news) return item;
    }
    return std::nullopt;
  }

  // Non-blocking: a counter that is full is readable, one that is empty is not.
  void make_readable(bool is_readable) const {
    uint64_t one = 1;
    if (is_readable)
      (void)!write(descriptor, &one, sizeof one);
    else
      (void)!read(descriptor, &one, sizeof one);
  }

  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return is_closed || !to_call.empty(); });
      std::optional<Item> item = next(to_call);
      if (!item && is_closed) return;
      if (!item) continue;
      if (is_closed && !item->is_last) continue;
      if (is_closed) item->event.is_cancelled = 1;
      running = item->merged;
      lock.unlock();
      item->sink.callback(&item->event);
      lock.lock();
      running.reset();
      changed.notify_all();
    }
  }
};

Result<std::unique_ptr<Events>> Events::open() {
  const int descriptor = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (descriptor < 0)
    return Status::error("eventfd: " + std::string(std::strerror(errno)),
                         "Let the process have more file descriptors (ulimit -n)");
  return std::unique_ptr<Events>(new Events(std::make_shared<State>(descriptor)));
}

Events::~Events() { close(); }

void Events::close() {
  const bool is_own = is_in_callback();
  std::unique_lock lock(state_->mutex);
  state_->is_closed = true;
  state_->changed.notify_all();
  std::thread thread = std::move(state_->thread);
  lock.unlock();
  if (!thread.joinable()) return;
  if (is_own)
    thread.detach();  // it ends when the callback has returned
  else
    thread.join();
}

void Events::prepare(const Sink& sink) {
  if (sink.callback == nullptr) return;
  const std::lock_guard lock(state_->mutex);
  if (state_->thread.joinable() || state_->is_closed) return;
  state_->thread = start_thread([state = state_] { state->run(); });
  state_->thread_id = state_->thread.get_id();
}

void Events::add(const Sink& sink, braid_fabric_event event, bool is_last) {
  event.user = sink.user;
  const std::lock_guard lock(state_->mutex);
  state_->queue({sink, event, nullptr, is_last});
}

void Events::merge(const Sink& sink, braid_fabric_event event,
                   const std::shared_ptr<Merged>& merged, uint64_t value) {
  event.user = sink.user;
  const std::lock_guard lock(state_->mutex);
  merged->latest = value;
  if (merged->is_queued || merged->is_released) return;
  merged->is_queued = true;
  state_->queue({sink, event, merged, false});
}

void Events::release(const std::shared_ptr<Merged>& merged) {
  const bool is_own = is_in_callback();
  std::unique_lock lock(state_->mutex);
  merged->is_released = true;
  if (!is_own) state_->changed.wait(lock, [&] { return state_->running != merged; });
}

size_t Events::take(std::span<braid_fabric_event> events) {
  const std::lock_guard lock(state_->mutex);
  size_t count = 0;
  while (count < events.size()) {
    const std::optional<Item> item = state_->next(state_->to_take);
    if (!item) break;
    events[count++] = item->event;
  }
  state_->make_readable(!state_->to_take.empty());
  return count;
}

int Events::descriptor() const { return state_->descriptor; }

bool Events::is_in_callback() const {
  const std::lock_guard lock(state_->mutex);
  return state_->thread_id == std::this_thread::get_id();
}

}  // namespace braid::fabric
