#include "fabric/library/service.h"

#include <sched.h>
#include <sys/random.h>
#include <time.h>

#include <chrono>
#include <limits>
#include <utility>

#include "fabric/ofi/domain.h"
#include "fabric/staged/domain.h"

namespace braid::fabric {
namespace {

constexpr uint64_t kBusyNs = 100'000;  // after something has happened, it looks again at once
constexpr auto kQuiet = std::chrono::microseconds(250);  // between looks when nothing happens

uint64_t random_number() {
  uint64_t number = 0;
  while (getrandom(&number, sizeof number, 0) != sizeof number) {
  }
  return number;
}

Result<std::unique_ptr<Domain>> open_rail(const std::string& provider, const std::string& address) {
  if (!provider.empty()) {
    const ofi::Quirks* quirks = ofi::find_quirks(provider);
    if (quirks == nullptr)
      return Status::error("braid does not know the provider '" + provider + "'",
                           "`braid fabric doctor` lists those that it knows");
    return ofi::open_domain(*quirks, address);
  }
  Result<std::unique_ptr<Domain>> opened = Status::error("no provider of libfabric is here");
  for (const ofi::Quirks* quirks : ofi::all_quirks()) {
    opened = ofi::open_domain(*quirks, address);
    if (opened.ok()) break;
  }
  return opened;
}

}  // namespace

Result<std::unique_ptr<Service>> Service::open(const std::string& provider,
                                               const std::vector<std::string>& addresses) {
  std::vector<std::unique_ptr<Domain>> rails;
  for (const std::string& address : addresses) {
    Result<std::unique_ptr<Domain>> rail = open_rail(provider, address);
    if (!rail.ok()) return rail.status();
    Result<std::unique_ptr<Domain>> staged = staged::stage(std::move(rail).value());
    if (!staged.ok()) return staged.status();
    rails.push_back(std::move(staged).value());
  }
  EngineOptions options;
  options.engine = random_number();
  Result<std::unique_ptr<Engine>> engine = Engine::open(std::move(rails), options);
  if (!engine.ok()) return engine.status();
  return std::unique_ptr<Service>(new Service(std::move(engine).value()));
}

Service::Service(std::unique_ptr<Engine> engine)
    : engine_(std::move(engine)), thread_([this] { work(); }) {}

Service::~Service() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  ended_.notify_one();
  thread_.join();
}

uint64_t Service::now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

uint64_t Service::after_ns(uint64_t limit_us) {
  constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
  const uint64_t now = now_ns();
  return limit_us > (kMax - now) / 1000 ? kMax : now + limit_us * 1000;
}

bool Service::wait(uint64_t limit_us, const std::function<bool(Engine&)>& is_so) {
  const uint64_t end_ns = after_ns(limit_us);
  ++waiting_;
  bool is_met = false;
  for (;;) {
    bool is_busy = false;
    {
      const std::lock_guard lock(mutex_);
      is_met = is_so(*engine_);
      if (!is_met) is_busy = engine_->step(now_ns());
    }
    if (is_met || now_ns() >= end_ns) break;
    if (!is_busy) sched_yield();
  }
  --waiting_;
  return is_met;
}

void Service::work() {
  uint64_t happened_ns = 0;
  std::unique_lock lock(mutex_);
  while (!is_ending_) {
    const bool is_driven = waiting_ > 0;
    if (!is_driven && engine_->step(now_ns())) happened_ns = now_ns();
    if (is_driven || now_ns() - happened_ns > kBusyNs) {
      ended_.wait_for(lock, kQuiet);
    } else {
      lock.unlock();
      sched_yield();
      lock.lock();
    }
  }
}

}  // namespace braid::fabric
