#include "fabric/sleep.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>

namespace braid::fabric {
namespace {

/// The longest sleep, however late the next deadline: a wake-up that a provider misses costs no
/// more.
constexpr uint64_t kLongestNs = 200'000'000;
/// The longest one that nobody can end.
constexpr uint64_t kNapNs = 400'000;

}  // namespace

Sleep::Sleep() : waker_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

Sleep::~Sleep() {
  if (waker_ >= 0) close(waker_);
}

void Sleep::poll(uint64_t limit_ns, const std::vector<int>& descriptors) const {
  std::vector<pollfd> awaited{{waker_, POLLIN, 0}};  // a negative one is left out
  for (const int descriptor : descriptors) awaited.push_back({descriptor, POLLIN, 0});
  const timespec limit{0, static_cast<long>(std::min(limit_ns, waker_ < 0 ? kNapNs : kLongestNs))};
  ppoll(awaited.data(), awaited.size(), &limit, nullptr);
  uint64_t count = 0;
  (void)!read(waker_, &count, sizeof count);
}

void Sleep::wake_before(uint64_t at_ns) {
  if (at_ns < at_ns_) wake();
}

void Sleep::wake() {
  if (!is_asleep_) return;
  is_asleep_ = false;  // once is enough
  const uint64_t one = 1;
  (void)!write(waker_, &one, sizeof one);
}

}  // namespace braid::fabric
