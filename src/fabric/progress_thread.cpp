#include "fabric/progress_thread.h"

#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "fabric/sleep.h"
#include "fabric/thread.h"
#include "host/file.h"

namespace braid::fabric {
namespace {

constexpr size_t kQueuedMax = 1024;       // postings
constexpr size_t kCompletionsMax = 4096;  // beyond that, the thread waits for the engine
constexpr size_t kCompletionsAtOnce = 64;
constexpr uint64_t kBusyNs = 5'000;          // after an event the thread polls for so long
constexpr uint64_t kLooksAgainNs = 400'000;  // where no descriptor tells of arrivals, or of room

size_t messages_in(std::span<const Completion> completions) {
  return static_cast<size_t>(
      std::count_if(completions.begin(), completions.end(),
                    [](const Completion& each) { return each.event == Event::kReceived; }));
}

class ThreadedDomain final : public Domain {
  /// The engine's thread has the wire while it calls.
  template <typename Call>
  auto between_looks(const Call& call) const {
    ++callers_;
    const std::lock_guard lock(wire_mutex_);
    --callers_;
    return call();
  }

 public:
  explicit ThreadedDomain(std::unique_ptr<Domain> wire)
      : wire_(std::move(wire)),
        has_descriptor_(wire_->wait_descriptor() >= 0),
        arrivals_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        thread_(start_thread([this] { work(); })) {}

  ~ThreadedDomain() override {
    {
      const std::lock_guard lock(mutex_);
      is_ending_ = true;
      sleep_.wake();
    }
    thread_.join();
    wire_.reset();
  }

  const Traits& traits() const override { return wire_->traits(); }
  Bytes address() const override { return wire_->address(); }

  Result<uint32_t> add_region(MutableBytes memory, Access access) override {
    return between_looks([&] { return wire_->add_region(memory, access); });
  }
  RemoteRange remote_range(uint32_t region) const override {
    return between_looks([&] { return wire_->remote_range(region); });
  }
  void remove_region(uint32_t region) override {
    between_looks([&] { wire_->remove_region(region); });
  }
  bool removal_fences(uint32_t region) const override {
    return between_looks([&] { return wire_->removal_fences(region); });
  }
  Drain drain(uint32_t region) const override {
    return between_looks([&] { return wire_->drain(region); });
  }

  Result<uint32_t> connect(Bytes address) override {
    return between_looks([&] { return wire_->connect(address); });
  }
  void disconnect(uint32_t peer) override;
  void abandon(uint32_t peer, Absence absence) override {
    between_looks([&] {
      fail_unposted(peer);
      wire_->abandon(peer, absence);
    });
    wake();
  }

  Result<uint32_t> open_door() override;
  Bytes door_address(uint32_t door) const override { return door_addresses_.at(door); }
  Result<uint32_t> add_door_region(uint32_t door, MutableBytes memory) override {
    return between_looks([&] { return wire_->add_door_region(door, memory); });
  }
  Result<uint32_t> add_twin_region(std::optional<uint32_t> door, MutableBytes memory,
                                   const RemoteRange& twin) override {
    return between_looks([&] { return wire_->add_twin_region(door, memory, twin); });
  }
  void close_door(uint32_t door) override {
    between_looks([&] { wire_->close_door(door); });
    door_addresses_.erase(door);
    wake();
  }
  Drain drain_door(uint32_t door) const override {
    return between_looks([&] { return wire_->drain_door(door); });
  }

  bool post_write(const Write& write) override;
  bool post_send(uint32_t peer, uint32_t region, Bytes message, uint64_t context) override {
    return enqueue({peer, {Event::kPosted, false, 0, 0, context}, [=](Domain& wire) {
                      return wire.post_send(peer, region, message, context);
                    }});
  }
  bool post_receive(uint32_t region, MutableBytes buffer, uint64_t context) override {
    if (unreturned_count_ > 0) --unreturned_count_;
    return enqueue({kNoPeer, {Event::kReceived, false, 0, 0, context}, [=](Domain& wire) {
                      return wire.post_receive(region, buffer, context);
                    }});
  }

  size_t poll(std::span<Completion> completions) override;
  Rejections rejections() const override {
    return between_looks([&] { return wire_->rejections(); });
  }
  int wait_descriptor() const override { return arrivals_.get(); }
  bool arm() override;

 private:
  static constexpr uint32_t kNoPeer = ~uint32_t{0};
  /// What the wire does not take for so long, and nothing else to that peer, fails: the engine does
  /// not see that its wire refuses, as it does without this thread (policy/rail_health.h).
  static constexpr uint64_t kRefusedNs = 1'000'000'000;
  /// The same for a peer for which the wire has taken nothing yet: its connection is still being
  /// made. Longer than a heartbeat lets a peer be silent, so that a pause of the peer fails
  /// nothing.
  static constexpr uint64_t kConnectNs = 6'000'000'000;
  struct Posting {
    uint32_t peer;
    Completion failed;  // how it ends if it is never posted
    std::function<bool(Domain&)> post;
    uint64_t since_ns = 0;  // when the thread first tried it; 0: it has not
  };

  bool enqueue(Posting posting);
  void wake() {
    const std::lock_guard lock(mutex_);
    sleep_.wake();
  }
  void work();
  bool look();
  void take_queued();
  void fail_unposted(uint32_t peer);
  bool post_queued();
  bool is_refused(Posting& posting, uint64_t now_ns) const;
  void count_completions();
  bool leaves_time(uint64_t now_ns) const;
  void hand_out(std::span<const Completion> completions);
  void rest();

  mutable std::mutex wire_mutex_;
  mutable std::atomic<int> callers_ = 0;  // of the engine's thread, waiting for the wire
  std::unique_ptr<Domain> wire_;          // under wire_mutex_
  std::vector<Posting> unposted_;         // under wire_mutex_: their peers have had no room
  std::unordered_map<uint32_t, uint64_t> taken_ns_;  // by peer: when the wire last took something
  uint64_t polled_ns_ = 0;                           // under wire_mutex_
  const bool has_descriptor_;
  std::unordered_map<uint32_t, std::vector<std::byte>> door_addresses_;  // of the engine's thread

  std::mutex mutex_;             // held for moments; taken after wire_mutex_
  std::vector<Posting> queued_;  // under mutex_, like the next five
  std::deque<Completion> completions_;
  Sleep sleep_;
  bool is_armed_ = false;  // the next completions are to be told
  bool is_told_ = false;   // the eventfd is readable
  // Their sizes, for looks without the mutex.
  std::atomic<size_t> queued_count_ = 0;
  std::atomic<size_t> completion_count_ = 0;
  std::atomic<bool> is_full_ = false;         // the engine must take some first
  std::atomic<size_t> unreturned_count_ = 0;  // messages whose buffers are not posted again
  std::atomic<bool> is_ending_ = false;
  const File arrivals_;  // an eventfd; not open: none could be made; the engine looks now and then
  std::thread thread_;
};

// ---- The engine's thread ----

void ThreadedDomain::disconnect(uint32_t peer) {
  between_looks([&] {
    fail_unposted(peer);
    taken_ns_.erase(peer);
    wire_->disconnect(peer);
  });
  wake();
}

/// The wire never hears of the peer's postings that still wait.
void ThreadedDomain::fail_unposted(uint32_t peer) {
  take_queued();
  std::vector<Completion> failed;
  std::erase_if(unposted_, [&](const Posting& posting) {
    if (posting.peer == peer) failed.push_back(posting.failed);
    return posting.peer == peer;
  });
  hand_out(failed);
}

Result<uint32_t> ThreadedDomain::open_door() {
  return between_looks([&] {
    Result<uint32_t> door = wire_->open_door();
    if (door.ok()) {
      const Bytes address = wire_->door_address(door.value());
      door_addresses_[door.value()].assign(address.begin(), address.end());
    }
    return door;
  });
}

bool ThreadedDomain::post_write(const Write& write) {
  return enqueue(
      {write.peer,
       {Event::kPosted, false, 0, 0, write.context},
       [write, further = std::vector(write.further.begin(), write.further.end())](Domain& wire) {
         Write copy = write;
         copy.further = further;
         return wire.post_write(copy);
       }});
}

bool ThreadedDomain::enqueue(Posting posting) {
  const std::lock_guard lock(mutex_);
  if (queued_.size() >= kQueuedMax) return false;
  queued_.push_back(std::move(posting));
  queued_count_ = queued_.size();
  sleep_.wake();
  return true;
}

size_t ThreadedDomain::poll(std::span<Completion> completions) {
  if (completion_count_ == 0) return 0;
  const std::lock_guard lock(mutex_);
  const size_t count = std::min(completions.size(), completions_.size());
  const auto end = completions_.begin() + static_cast<std::ptrdiff_t>(count);
  std::copy(completions_.begin(), end, completions.begin());
  completions_.erase(completions_.begin(), end);
  const bool was_full = is_full_;
  count_completions();
  if (was_full && !is_full_) sleep_.wake();
  return count;
}

bool ThreadedDomain::arm() {
  const std::lock_guard lock(mutex_);
  if (!arrivals_.is_open() || !completions_.empty()) return false;
  uint64_t count = 0;
  if (std::exchange(is_told_, false)) (void)!read(arrivals_.get(), &count, sizeof count);
  is_armed_ = true;
  return true;
}

// ---- The domain's thread ----

void ThreadedDomain::work() {
  uint64_t happened_ns = 0;
  while (!is_ending_) {
    const bool is_busy = look();
    while (callers_ > 0) sched_yield();  // or they would wait long: the mutex is free for moments
    const uint64_t now_ns = monotonic_ns();
    if (is_busy) happened_ns = now_ns;
    if (now_ns - happened_ns > kBusyNs) rest();
  }
}

bool ThreadedDomain::look() {
  std::array<Completion, kCompletionsAtOnce> come;
  const std::lock_guard lock(wire_mutex_);
  const bool has_posted = post_queued();
  const uint64_t now_ns = monotonic_ns();
  if (is_full_ || leaves_time(now_ns)) return has_posted;
  polled_ns_ = now_ns;
  const size_t count = wire_->poll(come);
  hand_out({come.data(), count});
  return has_posted || count > 0 || wire_->has_copied();
}

void ThreadedDomain::take_queued() {
  const std::lock_guard lock(mutex_);
  std::move(queued_.begin(), queued_.end(), std::back_inserter(unposted_));
  queued_.clear();
  queued_count_ = 0;
}

/// Nothing is ordered, so a peer without room is passed over until the next look.
bool ThreadedDomain::post_queued() {
  if (queued_count_ > 0 && unposted_.size() < kQueuedMax) take_queued();
  if (unposted_.empty()) return false;
  const uint64_t now_ns = monotonic_ns();
  std::vector<uint32_t> without_room;
  std::vector<Completion> failed;
  const size_t before = unposted_.size();
  std::erase_if(unposted_, [&](Posting& posting) {
    const bool has_room =
        std::find(without_room.begin(), without_room.end(), posting.peer) == without_room.end();
    if (has_room && posting.post(*wire_)) {
      taken_ns_[posting.peer] = now_ns;
      return true;
    }
    if (has_room) without_room.push_back(posting.peer);
    if (!is_refused(posting, now_ns)) return false;
    failed.push_back(posting.failed);
    return true;
  });
  hand_out(failed);
  return unposted_.size() < before;
}

bool ThreadedDomain::is_refused(Posting& posting, uint64_t now_ns) const {
  if (posting.since_ns == 0) posting.since_ns = now_ns;
  const auto taken = taken_ns_.find(posting.peer);
  if (posting.peer == kNoPeer) return false;
  if (taken == taken_ns_.end()) return now_ns > posting.since_ns + kConnectNs;
  return now_ns > std::max(posting.since_ns, taken->second) + kRefusedNs;
}

void ThreadedDomain::count_completions() {
  completion_count_ = completions_.size();
  is_full_ = completions_.size() >= kCompletionsMax;
}

/// A provider keeps messages for which no buffer is posted, however many come. So the thread leaves
/// the engine time to post the buffers again.
bool ThreadedDomain::leaves_time(uint64_t now_ns) const {
  return unreturned_count_ > 0 && now_ns < polled_ns_ + kLooksAgainNs;
}

void ThreadedDomain::hand_out(std::span<const Completion> completions) {
  if (completions.empty()) return;
  const std::lock_guard lock(mutex_);
  completions_.insert(completions_.end(), completions.begin(), completions.end());
  unreturned_count_ += messages_in(completions);
  count_completions();
  if (!std::exchange(is_armed_, false)) return;
  is_told_ = true;
  const uint64_t one = 1;
  (void)!write(arrivals_.get(), &one, sizeof one);
}

/// What the engine's thread asks for after the wire is armed wakes this one, so no lock is free
/// between arming and sleeping.
void ThreadedDomain::rest() {
  const uint64_t now_ns = monotonic_ns();
  std::unique_lock wire(wire_mutex_);
  const bool is_told = has_descriptor_ && wire_->arm();
  if (has_descriptor_ && !is_told) return;  // something has come already
  std::unique_lock lock(mutex_);
  const bool waits = is_full_ || leaves_time(now_ns);
  const bool looks_again = !is_told || !unposted_.empty() || waits;
  const uint64_t within_ns = looks_again ? kLooksAgainNs : wire_->look_within_ns();
  if (is_ending_ || !queued_.empty()) return;
  wire.unlock();
  sleep_.until(within_ns == kNever ? kNever : now_ns + within_ns, now_ns,
               is_told && !waits ? std::vector<int>{wire_->wait_descriptor()} : std::vector<int>{},
               lock);
}

}  // namespace

std::unique_ptr<Domain> with_progress_thread(std::unique_ptr<Domain> wire) {
  return std::make_unique<ThreadedDomain>(std::move(wire));
}

}  // namespace braid::fabric
