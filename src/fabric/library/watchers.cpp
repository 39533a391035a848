#include "fabric/library/watchers.h"

#include <atomic>
#include <utility>

namespace braid::fabric {
namespace {

class HostWord final : public Word {
 public:
  uint64_t* address() override { return &word_; }

 private:
  alignas(64) uint64_t word_ = 0;
};

}  // namespace

std::unique_ptr<Word> make_host_word() { return std::make_unique<HostWord>(); }

Watchers::Added Watchers::add(std::unique_ptr<Word> word, const Sink& sink) {
  uint64_t* address = word->address();
  return {watchers_.add({std::move(word), sink, std::make_shared<Merged>(), 0}), address};
}

Result<Watchers::Released> Watchers::release(uint64_t id) {
  Watcher* watcher = watchers_.find(id);
  if (watcher == nullptr)
    return Status::error("there is no watcher " + std::to_string(id) + " (any more)");
  Released released{std::move(watcher->merged), std::move(watcher->word)};
  watchers_.erase(id);
  return released;
}

bool Watchers::poll(Events& events) {
  bool any = false;
  watchers_.for_each([&](uint64_t id, Watcher& watcher) {
    // Acquire: the callback sees what the thread wrote before the word.
    const uint64_t now = std::atomic_ref(*watcher.word->address()).load(std::memory_order_acquire);
    if (now == watcher.seen) return;
    watcher.seen = now;
    any = true;
    braid_fabric_event event{};
    event.kind = BRAID_FABRIC_EVENT_WORD;
    event.id = id;
    events.merge(watcher.sink, event, watcher.merged, now);
  });
  return any;
}

}  // namespace braid::fabric
