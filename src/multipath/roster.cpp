#include "multipath/roster.h"

#include <algorithm>
#include <thread>

#include "cuda/relaxed_capture.h"
#include "cuda/scoped_context.h"

namespace braid::multipath {
namespace {

using std::chrono::steady_clock;

// How long `forget` and the destructor give transfers in flight.
constexpr std::chrono::milliseconds kDrainLimit{5000};
constexpr std::chrono::milliseconds kFailedDrainLimit{200};
constexpr std::chrono::microseconds kDrainStep{200};

// The largest transfers take tens of milliseconds. The driver is asked about what takes longer.
constexpr uint64_t kLateNs = 500'000'000;

// True when no transfer of these targets is in flight. Reads host memory only.
template <typename Targets>
bool drain(const Targets& targets, steady_clock::time_point deadline) {
  while (true) {
    bool idle = true;
    for (const auto& target : targets) idle = target->harvest() && idle;
    if (idle || steady_clock::now() >= deadline) return idle;
    std::this_thread::sleep_for(kDrainStep);
  }
}

}  // namespace

Roster::Roster(const cuda::Driver& driver, const Options& options, const Relays& relays,
               const Planner& planner, std::unique_ptr<CopyEngineMover> copy_engine)
    : driver_(driver),
      options_(options),
      relays_(relays),
      planner_(planner),
      copy_engine_(std::move(copy_engine)),
      relay_endpoints_(static_cast<size_t>(relays.gpu_count()), nullptr),
      seen_primaries_(static_cast<size_t>(relays.gpu_count()), false),
      watch_(driver, [this](uint64_t now_ns) { return look_after_transfers(now_ns); }) {}

Roster::~Roster() {
  drain(targets_, steady_clock::now() + kDrainLimit);  // while relays are still looked after
  watch_.close();
  const std::unique_lock lock(mutex_);
  const cuda::RelaxedCapture relaxed(driver_);
  targets_.clear();
  copy_engine_.reset();
  endpoints_.clear();
}

// Keeps an error for `problems`, and passes it on.
Status Roster::note(Status status) {
  if (!status.ok())
    problems_.push_back(status.message() + ". Copies there stay native, and it does not relay");
  return status;
}

// ---- Contexts come ----

// Cheap, and beside copies of other threads: most pinnings bring nothing new.
bool Roster::has_news(CUcontext context) {
  const std::shared_lock lock(mutex_);
  if (gone_relays_ != 0 || (context != nullptr && !is_settled(context))) return true;
  for (int gpu = 0; gpu < relays_.gpu_count(); ++gpu) {
    unsigned flags = 0;
    int active = 0;
    if (!seen_primaries_[static_cast<size_t>(gpu)])
      driver_.cuDevicePrimaryCtxGetState(relays_.device(gpu), &flags, &active);
    if (active != 0) return true;
  }
  return false;
}

Status Roster::add(CUcontext context) {
  if (!has_news(context)) return {};
  const cuda::RelaxedCapture relaxed(driver_);
  cuda::ScopedContext scope(driver_);
  const std::unique_lock lock(mutex_);
  const GpuSet reopened = reopen_relays();
  Status status = adopt_active_contexts();  // among them those, whose kernels are then loaded
  restore_relays(reopened);
  if (!status.ok() || context == nullptr || is_settled(context)) return status;
  CUdevice device = 0;
  CUresult asked = scope.enter(context);
  if (asked == CUDA_SUCCESS) asked = driver_.cuCtxGetDevice(&device);
  status = driver_.check(asked, "asking a context for its GPU");
  if (!status.ok()) return status;
  const int gpu = relays_.gpu_of(device);
  return gpu >= 0 ? adopt(gpu, context, false) : Status::error("a context is of no known GPU");
}

// Targets: every relay's context, and those that the program itself has made active.
Status Roster::adopt_active_contexts() {
  Status first;
  for (int gpu = 0; gpu < relays_.gpu_count(); ++gpu) {
    const Status status = adopt_primary(gpu);
    if (!status.ok() && first.ok()) first = status;
  }
  return first;
}

Status Roster::adopt_primary(int gpu) {
  if (seen_primaries_[static_cast<size_t>(gpu)]) return {};
  const CUdevice device = relays_.device(gpu);
  unsigned flags = 0;
  int active = 0;
  driver_.cuDevicePrimaryCtxGetState(device, &flags, &active);
  CUcontext context = nullptr;
  if (active == 0 || driver_.cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS) return {};
  seen_primaries_[static_cast<size_t>(gpu)] = true;
  // An endpoint keeps the context for good; a second hold would only be given back.
  const bool known = find_endpoint(context) != nullptr || is_settled(context);
  if (known) driver_.cuDevicePrimaryCtxRelease(device);
  return adopt(gpu, context, !known);
}

// A context that could not be made a target is not tried again at every pinning of memory.
Status Roster::adopt(int gpu, CUcontext context, bool retained) {
  if (is_settled(context)) return {};
  auto endpoint = endpoint_for(gpu, context, retained);
  const Status status = note(endpoint.ok() ? make_target(*endpoint.value()) : endpoint.status());
  if (!status.ok()) refused_.push_back({context, gpu});
  return status;
}

bool Roster::is_settled(CUcontext context) {
  return find_target(context) != nullptr ||
         std::any_of(refused_.begin(), refused_.end(),
                     [context](const Refused& one) { return one.context == context; });
}

Result<Endpoint*> Roster::endpoint_for(int gpu, CUcontext context, bool retained) {
  if (Endpoint* known = find_endpoint(context)) return known;
  auto endpoint = Endpoint::open(driver_, options_, relays_.device(gpu), gpu, context, retained);
  if (!endpoint.ok()) return endpoint.status();
  if (copy_engine_ != nullptr) {
    const Status prepared = copy_engine_->prepare(*endpoint.value());
    if (!prepared.ok()) return prepared;
  }
  endpoints_.push_back(std::move(endpoint).value());
  return endpoints_.back().get();
}

Status Roster::make_target(Endpoint& endpoint) {
  auto target = Target::open(driver_, options_, planner_, endpoint, link_relays(endpoint),
                             copy_engine_.get());
  if (!target.ok()) return target.status();
  targets_.push_back(std::move(target).value());
  return {};
}

bool Roster::link(const Endpoint& relay, const Endpoint& target) {
  if ((relays_.of(target.gpu()) & gpu_bit(relay.gpu())) == 0) return false;
  const cuda::ScopedContext scope(driver_, relay.context());
  if (scope.status() != CUDA_SUCCESS) return false;
  const CUresult enabled = driver_.cuCtxEnablePeerAccess(target.context(), 0);
  return enabled == CUDA_SUCCESS || enabled == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}

// The open relays that reach the target, in order of preference: when few paths suffice, those of
// the target's own socket cross nothing shared.
std::vector<Endpoint*> Roster::link_relays(const Endpoint& target) {
  std::vector<Endpoint*> linked;
  for (Endpoint* relay : relay_endpoints_)
    if (relay != nullptr && link(*relay, target)) linked.push_back(relay);
  std::stable_partition(linked.begin(), linked.end(), [&](const Endpoint* relay) {
    return relays_.are_neighbours(relay->gpu(), target.gpu());
  });
  return linked;
}

// ---- Contexts go ----

void Roster::forget(CUcontext context, End end) {
  const std::unique_lock lock(mutex_);
  // What was refused once may be had when the program makes it anew.
  std::erase_if(refused_, [&](const Refused& one) {
    if (one.context != context) return false;
    seen_primaries_[static_cast<size_t>(one.gpu)] = false;
    return true;
  });
  Endpoint* endpoint = find_endpoint(context);
  if (endpoint == nullptr) return;
  std::vector<Target*> users;
  for (const auto& target : targets_)
    if (target->uses(*endpoint)) users.push_back(target.get());
  if (copy_engine_ != nullptr) copy_engine_->forget(*endpoint);
  // What has failed is not waited for, but for kernels elsewhere that still name its memory.
  const bool has_failed =
      endpoint->has_failed() || std::any_of(users.begin(), users.end(), [&](const Target* target) {
        return &target->endpoint() == endpoint && target->has_failed();
      });
  const bool is_drained =
      drain(users, steady_clock::now() + (has_failed ? kFailedDrainLimit : kDrainLimit));
  // What dies with its context is left to it: giving it back might wait for the program's kernels.
  const bool is_given_back = end == End::kReleased && is_drained;
  if (!is_given_back) endpoint->abandon();
  for (Target* target : users) {
    target->lose_relay(*endpoint);
    if (&target->endpoint() != endpoint) continue;
    if (!is_given_back) target->abandon();
    target->add_counts(forgotten_);
  }
  if (!is_drained) watch_.begin();
  remove(*endpoint);
  if (is_given_back)
    endpoint->close();
  else if (endpoint->is_primary())  // before a reset, which does not release it
    driver_.cuDevicePrimaryCtxRelease(endpoint->device());
}

// From the lists that are asked for what there is. Other targets' lanes still know it.
void Roster::remove(Endpoint& endpoint) {
  const cuda::RelaxedCapture relaxed(driver_);
  const cuda::ScopedContext scope(driver_, endpoint.context());
  std::erase_if(targets_, [&](const auto& target) { return &target->endpoint() == &endpoint; });
  const auto gpu = static_cast<size_t>(endpoint.gpu());
  if (!endpoint.is_primary()) return;
  seen_primaries_[gpu] = false;
  if ((relays_.all() & gpu_bit(endpoint.gpu())) == 0) return;
  relay_endpoints_[gpu] = nullptr;
  gone_relays_ |= gpu_bit(endpoint.gpu());
}

// ---- Relays fail ----

// The watch's thread. True while a transfer by kernels is under way, or may be.
bool Roster::look_after_transfers(uint64_t now_ns) {
  std::vector<const Endpoint*> failed;
  {
    const std::shared_lock lock(mutex_, std::try_to_lock);
    if (!lock) return true;
    uint64_t oldest_ns = 0;
    for (const auto& target : targets_) oldest_ns = std::max(oldest_ns, target->oldest_ns(now_ns));
    if (oldest_ns < kLateNs) return oldest_ns != 0;
    for (const Endpoint* relay : relay_endpoints_)
      if (relay != nullptr && relay->has_failed()) failed.push_back(relay);
    bool is_all_told = true;
    for (const auto& target : targets_) is_all_told = target->mend(failed, now_ns) && is_all_told;
    if (!is_all_told) return true;  // again at the next look
  }
  drop_failed(failed);
  return true;
}

// What has failed stays so until the program resets it.
void Roster::drop_failed(std::span<const Endpoint* const> failed) {
  if (failed.empty()) return;
  std::vector<std::string> found;
  if (const std::unique_lock lock(mutex_, std::try_to_lock); lock) {
    // A fault that ends every context is no relay's, and the program hears of it in its own
    // streams.
    const bool is_relays_own = std::any_of(
        targets_.begin(), targets_.end(), [](const auto& target) { return !target->has_failed(); });
    for (const Endpoint* endpoint : failed) {
      Endpoint*& relay = relay_endpoints_[static_cast<size_t>(endpoint->gpu())];
      if (relay != endpoint) continue;
      relay = nullptr;
      if (!is_relays_own) continue;
      found.push_back("GPU " + std::to_string(endpoint->gpu()) +
                      " has failed, and does not relay any more. Transfers that it had a part in "
                      "are carried again over the direct path");
    }
    problems_.insert(problems_.end(), found.begin(), found.end());
  }
  const auto say = say_.load();
  for (const std::string& problem : found)
    if (say != nullptr) say(problem.c_str());
}

// ---- Who is there ----

Endpoint* Roster::find_endpoint(CUcontext context) {
  for (const auto& endpoint : endpoints_)
    if (endpoint->context() == context && !endpoint->is_abandoned()) return endpoint.get();
  return nullptr;
}

Target* Roster::find_target(CUcontext context) {
  for (const auto& target : targets_)
    if (target->endpoint().context() == context) return target.get();
  return nullptr;
}

// The stream says which context is meant; its GPU must be the memory's.
Roster::Use Roster::use(const Classification& memory, CUstream stream) {
  Use use{.lock = std::shared_lock(mutex_, std::try_to_lock)};
  if (!use.lock || is_opening_) return use;
  use.verdict = Verdict::kForeignContext;
  CUcontext context = nullptr;
  if (driver_.cuStreamGetCtx(stream, &context) != CUDA_SUCCESS ||
      (memory.context != nullptr && memory.context != context))
    return use;
  Target* target = find_target(context);
  if (target == nullptr || target->endpoint().gpu() != memory.gpu) return use;
  use.target = target;
  use.verdict = Verdict::kAccelerated;
  return use;
}

GpuSet Roster::open_relays_of(int gpu) {
  const std::shared_lock lock(mutex_);
  GpuSet open = 0;
  for (const Endpoint* relay : relay_endpoints_)
    if (relay != nullptr) open |= gpu_bit(relay->gpu());
  return open & relays_.of(gpu);
}

bool Roster::has_target_with_relay() {
  const std::shared_lock lock(mutex_);
  return std::any_of(targets_.begin(), targets_.end(),
                     [](const auto& target) { return target->has_relay(); });
}

std::vector<std::string> Roster::problems() {
  const std::shared_lock lock(mutex_);
  return problems_;
}

void Roster::collect(std::chrono::milliseconds wait, PathCounts& counts) {
  const auto deadline = steady_clock::now() + wait;
  std::shared_lock lock(mutex_, std::try_to_lock);
  while (!lock && steady_clock::now() < deadline) {
    std::this_thread::sleep_for(kDrainStep);
    (void)lock.try_lock();
  }
  if (!lock) return;
  drain(targets_, deadline);
  for (const PathCount& count : forgotten_.all()) counts.add(count);
  for (const auto& target : targets_) target->add_counts(counts);
  if (copy_engine_ == nullptr) return;
  while (!copy_engine_->is_idle() && steady_clock::now() < deadline)
    std::this_thread::sleep_for(kDrainStep);
  copy_engine_->add_counts(counts);
}

}  // namespace braid::multipath
