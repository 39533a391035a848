#include "fabric/fake_provider/nic.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>
#include <vector>

namespace braid::fabric::fake {
namespace {

uint64_t seed() {
  const char* wanted = std::getenv("BRAID_FAKE_SEED");
  return wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : 1;
}

/// libfabric's variable that switches off its registration caches (fi_mr(3)).
bool may_cache() {
  const char* count = std::getenv("FI_MR_CACHE_MAX_COUNT");
  return count == nullptr || std::string_view(count) != "0";
}

struct Known {
  std::mutex mutex;
  std::set<Nic*> nics;
};
Known& known() {
  static Known all;
  return all;
}

}  // namespace

std::set<Nic*> Nic::all() {
  const std::lock_guard lock(known().mutex);
  return known().nics;
}

Nic::Nic(const Manners& wanted)
    : manners(wanted),
      random(seed() ^ (static_cast<uint64_t>(getpid()) << 32)),
      regions(wanted.caches_regions && may_cache()),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  {
    const std::lock_guard lock(known().mutex);
    known().nics.insert(this);
  }
  if (manners.makes_progress_alone) thread_ = std::thread([this] { work(); });
}

Nic::~Nic() {
  {
    const std::lock_guard lock(known().mutex);
    known().nics.erase(this);
  }
  is_ending_ = true;
  wake();
  if (thread_.joinable()) thread_.join();
  close(wake_);
}

void Nic::wake() {
  if (manners.makes_progress_alone) eventfd_write(wake_, 1);
}

void Nic::look() {
  if (!manners.makes_progress_alone) progress();
}

bool Nic::progress() {
  bool is_busy = false;
  for (Member* member : members) is_busy = member->progress() || is_busy;
  return is_busy;
}

void Nic::work() {
  while (!is_ending_) {
    bool is_busy = false;
    {
      const std::lock_guard lock(mutex);
      is_busy = progress();
    }
    if (is_busy)
      std::this_thread::yield();
    else
      wait();
  }
}

/// Until something comes in, is posted, or has not been answered for a while.
void Nic::wait() {
  constexpr int kUnansweredMs = 1, kQuietMs = 10;
  std::vector<pollfd> files = {{wake_, POLLIN, 0}};
  int limit_ms = kQuietMs;
  {
    const std::lock_guard lock(mutex);
    for (const Member* member : members) {
      files.push_back({member->descriptor(), POLLIN, 0});
      if (member->is_waiting()) limit_ms = kUnansweredMs;
    }
  }
  poll(files.data(), files.size(), limit_ms);
  eventfd_t count = 0;
  eventfd_read(wake_, &count);
}

}  // namespace braid::fabric::fake
