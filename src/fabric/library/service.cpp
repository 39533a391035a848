#include "fabric/library/service.h"

#include <sched.h>

#include <chrono>
#include <system_error>
#include <utility>

#include "base/try.h"
#include "fabric/gpu/memory.h"
#include "fabric/host/processes.h"
#include "fabric/library/endpoint_count.h"
#include "fabric/library/open_wire.h"
#include "fabric/library/placement.h"
#include "fabric/library/rail_address.h"
#include "fabric/library/trust.h"
#include "fabric/local/domain.h"
#include "fabric/ofi/domain.h"
#include "fabric/thread.h"
#include "host/allocation.h"
#include "host/random_number.h"

namespace braid::fabric {
namespace {

int kind_of(About about) {
  switch (about) {
    case About::kTicket: return BRAID_FABRIC_EVENT_TICKET;
    case About::kCount: return BRAID_FABRIC_EVENT_COUNT;
    case About::kPeer: return BRAID_FABRIC_EVENT_PEER;
    case About::kMessage: return BRAID_FABRIC_EVENT_MESSAGE;
  }
  return 0;
}

Status is_being_closed() { return Status::error("this engine is being closed"); }

Result<std::unique_ptr<Domain>> open_rail(const ServiceOptions& options, const Trust& trust,
                                          const EndpointCount& counts, const std::string& address) {
  if (options.provider == "local") return local::open_domain();
  if (!options.provider.empty()) {
    const ofi::Quirks* quirks = ofi::find_quirks(options.provider);
    if (quirks == nullptr)
      return Status::error("braid does not know the provider '" + options.provider + "'",
                           "`braid fabric doctor` lists those that it knows");
    return open_wire(*quirks, address, counts, options.has_gpu_memory, trust);
  }
  Result<std::unique_ptr<Domain>> opened = Status::error("no provider of libfabric is here");
  for (const ofi::Quirks* quirks : ofi::all_quirks()) {
    if (quirks->takes_device) continue;  // by its name alone
    opened = open_wire(*quirks, address, counts, options.has_gpu_memory, trust);
    if (opened.ok()) break;
  }
  return opened;
}

}  // namespace

Result<std::unique_ptr<Service>> Service::open(const ServiceOptions& wanted,
                                               const topology::Machine& machine,
                                               const std::vector<topology::Nic>& nics) {
  const Result<RailChoice> choice = rails_for(wanted, nics);
  if (!choice.ok()) return choice.status();
  BRAID_TRY(check_rail_addresses(wanted, choice.value().addresses, nics));
  BRAID_LET(trust, trust_for(wanted, choice.value().addresses));
  const OnNode here(machine, wanted.is_pinned ? choice.value().numa_node : -1);
  BRAID_LET(counts, endpoint_count(choice.value().addresses.size(), nics));
  std::vector<std::unique_ptr<Domain>> rails;
  for (const std::string& address : choice.value().addresses) {
    Result<std::unique_ptr<Domain>> rail = open_rail(wanted, trust, counts, address);
    if (!rail.ok()) return rail.status();
    rails.push_back(std::move(rail).value());
  }
  EngineOptions options;
  options.engine = random_number();
  options.secret = trust.secret;
  options.processes = host_processes();
  Result<std::unique_ptr<Engine>> engine = Engine::open(std::move(rails), options);
  if (!engine.ok()) return engine.status();
  Result<std::unique_ptr<Events>> events = Events::open();
  if (!events.ok()) return events.status();
  std::unique_ptr<Service> service(new Service(choice.value(), std::move(engine).value(),
                                               std::move(events).value()));  // owner: service
  service->numa_node_ = wanted.is_pinned ? choice.value().numa_node : -1;
  service->is_local_ = wanted.provider == "local";
  service->has_gpu_memory_ = wanted.has_gpu_memory || service->is_local_;
  return service;
}

Result<uint64_t> Service::add_region(MutableBytes memory) {
  const Result<std::shared_ptr<gpu::Lane>> lane = gpu::lane_of_memory(memory);
  if (!lane.ok()) return lane.status();
  if (!has_gpu_memory_ && lane.value() != nullptr)
    return Status::error("this is memory of a GPU, and the engine was opened without any",
                         "Open it with gpu_memory, and its peers too");
  return with_here([&](Engine& engine) {
    Result<uint64_t> added = engine.add_region(memory);
    if (added.ok() && lane.value() != nullptr) lanes_[added.value()] = lane.value()->end();
    return added;
  });
}

/// Private memory where there is none to share: peers write it through a queue.
Result<Service::Allocation> Service::allocate(size_t size_bytes) {
  Allocation made;
  Status unshared;
  if (is_local_) {
    auto shared = local::SharedMemory::allocate(size_bytes, numa_node_);
    unshared = shared.status();
    if (shared.ok()) made.shared = std::move(shared).value();
  }
  if (made.shared != nullptr) return made;
  BRAID_LET(own, allocate_privately(size_bytes, numa_node_));
  made.own = std::move(own.pages);
  if (is_local_)
    with([&](Engine&) { unshared_ = {unshared_.allocations + 1, unshared.message()}; });
  return made;
}

Result<Service::Allocated> Service::allocate_memory(size_t size_bytes) {
  BRAID_LET(made, allocate(size_bytes));
  const MutableBytes memory = made.bytes();
  // First, since it may fail: no region of freed memory must be left.
  decltype(allocations_) kept;
  kept.emplace(0, std::move(made));
  return with_here([&](Engine& engine) -> Result<Allocated> {
    BRAID_LET(region, engine.add_region(memory));
    auto node = kept.extract(kept.begin());
    node.key() = region;
    allocations_.insert(std::move(node));
    return Allocated{memory.data(), region};
  });
}

EngineReport Service::report() {
  return with([&](Engine& engine) {
    EngineReport report = report_of(engine);
    report.addresses = rails_.addresses;
    report.nics = rails_.nics;
    report.unshared = unshared_;
    return report;
  });
}

Status Service::remove_region(uint64_t region) {
  std::shared_ptr<gpu::LaneEnd> lane;
  decltype(allocations_)::node_type freed;  // without the lock, since it takes long
  Status removed = with_here([&](Engine& engine) {
    Status answer = engine.remove_region(region);
    if (answer.ok()) freed = allocations_.extract(region);
    if (const auto found = lanes_.find(region); answer.ok() && found != lanes_.end()) {
      lane = found->second;
      lanes_.erase(found);
    }
    return answer;
  });
  if (lane != nullptr) lane->wait();
  return removed;
}

Service::Service(RailChoice rails, std::unique_ptr<Engine> engine, std::unique_ptr<Events> events)
    : rails_(std::move(rails)),
      engine_(std::move(engine)),
      events_(std::move(events)),
      descriptors_(engine_->wait_descriptors()),
      thread_(start_thread([this] { work(); })) {}

Service::~Service() {
  mutex_.run([this] {
    drivers_.end();
    sleep_.wake();
  });
  thread_.join();
  with([](Engine& engine) { engine.completions().cancel_all(); });
  events_->close();  // before the engine: a callback may still be in a call
  take_leave();
}

/// Without a goodbye peers would notice the end only by silence. The limit is for peers that do not
/// listen.
void Service::take_leave() {
  constexpr uint64_t kLimitUs = 100'000;
  const uint64_t end_ns = monotonic_after_ns(kLimitUs);
  engine_->say_goodbye();
  while (engine_->has_messages_under_way() && monotonic_ns() < end_ns)
    (void)engine_->step(monotonic_ns());
}

bool Service::wait_on(uint64_t limit_us, const std::function<bool(Engine&)>& is_so) {
  return wait_until(
      mutex_, drivers_, monotonic_after_ns(limit_us), [&] { return is_so(*engine_); },
      [this](uint64_t now_ns) { return step(now_ns); }, [this] { follow_up(); });
}

Status Service::ask(const Sink& sink, const std::function<Status(Engine&, uint64_t)>& ask) {
  events_->prepare(sink);
  return with([&](Engine& engine) {
    // What was asked for before that is cancelled. This would get no event any more.
    if (is_ending()) return is_being_closed();
    const uint64_t request = requests_.add({sink, std::make_shared<Merged>()});
    const Status refused = ask(engine, request);
    if (!refused.ok()) requests_.erase(request);
    return refused;
  });
}

Result<Watchers::Added> Service::watch(std::unique_ptr<Word> word, const Sink& sink) {
  events_->prepare(sink);
  return with([&](Engine&) -> Result<Watchers::Added> {
    if (is_ending()) return is_being_closed();
    return watchers_.add(std::move(word), sink);
  });
}

Status Service::release(uint64_t watcher) {
  Result<Watchers::Released> released = with([&](Engine&) { return watchers_.release(watcher); });
  if (released.ok()) events_->release(released.value().merged);
  return released.status();
}

void Service::work() {
  look_until_end(
      mutex_, drivers_, [this](uint64_t now_ns) { return step(now_ns); },
      [this](Lock& lock) { rest(lock); });
}

void Service::rest(Lock& lock) {
  const bool nobody_tells =
      descriptors_.empty() || !watchers_.is_empty() || engine_->waits_for_room();
  if (nobody_tells) {
    lock.unlock();
    drivers_.pause();
    lock.lock();
  } else if (engine_->arm()) {
    sleep_.until(engine_->next_deadline_ns(), monotonic_ns(), descriptors_, lock);
  }
}

// ---- Under the mutex ----

/// Called after each call, which may have left something to do.
void Service::follow_up() {
  deliver();
  drivers_.tell();
  if (!engine_->is_idle() || !watchers_.is_empty()) sleep_.wake();
  sleep_.wake_before(engine_->next_deadline_ns());
  if (std::exchange(drivers_.has_driver_left, false))
    sleep_.rearm([this] { return engine_->arm(); });
}

bool Service::step(uint64_t now_ns) {
  const bool is_busy = engine_->step(now_ns);
  deliver();
  return watchers_.poll(*events_) || is_busy;
}

void Service::deliver() {
  while (const std::optional<Happening> happening = engine_->completions().next())
    deliver(*happening);
}

void Service::deliver(const Happening& happening) {
  const Request* request = requests_.find(happening.request);
  const bool lasts = happening.about == About::kPeer || happening.about == About::kMessage;
  const bool is_last = !lasts || happening.is_cancelled;
  braid_fabric_event event{};
  event.kind = kind_of(happening.about);
  event.id = happening.id;
  event.value = happening.value;
  event.is_cancelled = happening.is_cancelled;
  if (happening.about == About::kMessage && !is_last)
    events_->merge(request->sink, event, request->messages, 0);
  else
    events_->add(request->sink, event, is_last);
  if (is_last) requests_.erase(happening.request);
}

}  // namespace braid::fabric
