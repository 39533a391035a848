#include "multipath/engine.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <mutex>
#include <shared_mutex>
#include <thread>

#include "cuda/relaxed_capture.h"
#include "cuda/scoped_context.h"
#include "multipath/classify.h"
#include "multipath/copy_engine/mover.h"
#include "multipath/copy_engine/station.h"
#include "multipath/cost_file.h"
#include "multipath/relays.h"
#include "multipath/staging/stager.h"
#include "multipath/target.h"

namespace braid::multipath {
namespace {

// How long `forget_context` and the destructor give transfers in flight.
constexpr std::chrono::seconds kDrainLimit{5};

}  // namespace

class Engine::Impl {
 public:
  Impl(const cuda::Driver& driver, const Options& options)
      : driver_(driver), options_(options), stager_(driver, options, [this](const Transfer& chunk) {
          const Segment whole{chunk.host, chunk.device, chunk.size_bytes};
          return submit({chunk.direction, {&whole, 1}, chunk.stream, chunk.priority}).verdict;
        }) {}
  ~Impl();

  Status open();
  Status add_context(CUcontext context);
  void forget_context(CUcontext context);
  GpuSet grant(CUmemoryPool pool, int gpu);
  GpuSet grant(CUdeviceptr address, size_t size_bytes);
  std::vector<std::pair<CUmemoryPool, GpuSet>> grant_default_pools();
  Outcome submit(const Batch& batch);
  std::optional<CUresult> stage(const Transfer& transfer, bool is_synchronous) {
    return stager_.copy(transfer, is_synchronous);
  }
  void collect(int wait_ms, PathCounts& counts);
  bool can_accelerate();
  std::vector<std::string> problems();
  uint64_t threshold_bytes(Direction direction) const {
    return thresholds_[static_cast<size_t>(direction)];
  }

  std::atomic<int> path_limit{0};

 private:
  Status list_devices();
  Status check_relay_list() const;
  Status check_hardware_queues() const;
  bool may_use_copy_engines() const;
  Status open_copy_engines();
  void read_costs();
  bool may_gain(const Batch& batch) const;
  MoverSet movers() const { return allowed_movers(options_.mover, copy_engine_ != nullptr, false); }
  Status open_relays();
  Status open_relay(int gpu);
  bool has_news(CUcontext context);
  bool is_settled(CUcontext context);
  Status adopt_active_contexts();
  Status adopt_primary(int gpu);
  Status adopt(int gpu, CUcontext context, bool retained);
  Status make_target(Endpoint& endpoint);
  Result<Endpoint*> endpoint_for(int gpu, CUcontext context, bool retained);
  Endpoint* find_endpoint(CUcontext context);
  Target* find_target(CUcontext context);
  Target* find_target(const Classification& memory, CUstream stream);
  GpuSet relays_for(int gpu);
  template <typename Targets>
  bool drain(const Targets& targets, std::chrono::milliseconds limit);
  Status note(Status status);

  const cuda::Driver& driver_;
  const Options options_;
  CostModel costs_ = default_costs();
  std::array<uint64_t, 2> thresholds_{UINT64_MAX, UINT64_MAX};  // by direction
  bool has_relays_ = false;                                     // some GPU may help some other
  std::shared_mutex mutex_;  // guards the lists; a Target guards itself
  std::vector<CUdevice> devices_;
  std::vector<std::vector<bool>> relays_;   // [relay][target]: usable
  GpuSet relay_gpus_ = 0;                   // those that may be a relay for some target
  std::vector<Endpoint*> relay_endpoints_;  // by GPU; null: not a relay
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
  std::unique_ptr<CopyEngineMover> copy_engine_;  // null: the kernel mover carries everything
  std::vector<std::unique_ptr<Target>> targets_;
  std::vector<bool> seen_primaries_;  // by GPU: its active primary context has been dealt with
  std::vector<CUcontext> refused_;    // contexts that could not be made targets
  std::vector<std::string> problems_;
  PathCounts forgotten_;    // counts of targets that are gone
  staging::Stager stager_;  // locks by itself; its chunks are transfers like others
};

Status Engine::Impl::list_devices() {
  int count = 0;
  const Status status = driver_.check(driver_.cuDeviceGetCount(&count), "counting the GPUs");
  if (!status.ok()) return status;
  for (int gpu = 0; gpu < count; ++gpu) {
    CUdevice device = 0;
    const Status got =
        driver_.check(driver_.cuDeviceGet(&device, gpu), "opening GPU " + std::to_string(gpu));
    if (!got.ok()) return got;
    devices_.push_back(device);
  }
  return {};
}

Status Engine::Impl::check_relay_list() const {
  for (const int gpu : options_.relays.gpus)
    if (gpu >= static_cast<int>(devices_.size()))
      return Status::error("BRAID_RELAYS names GPU " + std::to_string(gpu) +
                               ", but this process sees " + std::to_string(devices_.size()) +
                               " GPUs",
                           "Name GPUs from 0 to " + std::to_string(devices_.size() - 1));
  return {};
}

// With fewer queues than braid has streams in a context, a stream of the program's that waits on
// one GPU would hold up the program's streams on another (seen on 4xH200 with 1).
Status Engine::Impl::check_hardware_queues() const {
  if (options_.hardware_queues >= kStreamsPerContext) return {};
  return Status::error("CUDA_DEVICE_MAX_CONNECTIONS is " +
                           std::to_string(options_.hardware_queues) +
                           ", and streams that share a hardware queue wait for each other",
                       "Unset it, or set it to " + std::to_string(kStreamsPerContext) + " or more");
}

Status Engine::Impl::open() {
  Status status = list_devices();
  if (status.ok()) status = check_relay_list();
  if (status.ok()) status = check_hardware_queues();
  if (!status.ok()) return status;
  cuda::RelaxedCapture relaxed(driver_);
  cuda::ScopedContext scope(driver_);
  const int count = static_cast<int>(devices_.size());
  relays_.assign(count, std::vector<bool>(count, false));
  for (int relay = 0; relay < count; ++relay)
    for (int target = 0; target < count; ++target)
      relays_[relay][target] =
          options_.relays.allows(relay) && can_relay(driver_, devices_[relay], devices_[target]);
  for (int relay = 0; relay < count; ++relay)
    if (std::find(relays_[relay].begin(), relays_[relay].end(), true) != relays_[relay].end())
      relay_gpus_ |= gpu_bit(relay);
  has_relays_ = relay_gpus_ != 0;
  std::unique_lock lock(mutex_);
  if (has_relays_ && may_use_copy_engines()) status = open_copy_engines();
  read_costs();
  if (!status.ok() || !has_relays_) return status;  // nothing to gain, so nothing is opened
  status = open_relays();
  if (status.ok()) (void)adopt_active_contexts();  // what fails is in problems_
  return status;
}

// Beside the kernel mover they need hardware queues of their own.
bool Engine::Impl::may_use_copy_engines() const {
  if (options_.mover != MoverChoice::kAuto) return options_.mover == MoverChoice::kCopyEngine;
  return options_.hardware_queues >= kStreamsPerContext + copy_engine::kStreamsPerContext;
}

Status Engine::Impl::open_copy_engines() {
  auto mover = CopyEngineMover::open(driver_, options_);
  if (mover.ok()) copy_engine_ = std::move(mover).value();
  return mover.status();
}

void Engine::Impl::read_costs() {
  const LoadedCosts loaded = load_costs(driver_, options_);
  costs_ = loaded.costs;
  if (!loaded.problem.ok())
    problems_.push_back(loaded.problem.message() + ". Until then braid goes by its defaults");
  // However many paths there are: exact enough for a compare, and plan() decides.
  for (const Direction direction : {Direction::kHostToDevice, Direction::kDeviceToHost})
    thresholds_[static_cast<size_t>(direction)] =
        multipath::threshold_bytes(costs_, {.direction = direction,
                                            .paths = cuda::kMaxPaths,
                                            .movers = movers(),
                                            .asked_threshold_bytes = options_.threshold_bytes});
}

// Keeps an error for `problems`, and passes it on.
Status Engine::Impl::note(Status status) {
  if (!status.ok())
    problems_.push_back(status.message() + ". Copies there stay native, and it does not relay");
  return status;
}

// The primary context of every GPU that may relay; each is then a target as well. A GPU that cannot
// be opened (its memory is full, another process has it alone) is done without.
Status Engine::Impl::open_relays() {
  relay_endpoints_.assign(devices_.size(), nullptr);
  seen_primaries_.assign(devices_.size(), false);
  Status first;
  bool is_any_open = false;
  for (size_t gpu = 0; gpu < devices_.size(); ++gpu) {
    if (std::find(relays_[gpu].begin(), relays_[gpu].end(), true) == relays_[gpu].end()) continue;
    const Status status = note(open_relay(static_cast<int>(gpu)));
    is_any_open = is_any_open || status.ok();
    if (!status.ok() && first.ok()) first = status;
  }
  return is_any_open ? Status() : first;
}

Status Engine::Impl::open_relay(int gpu) {
  CUcontext context = nullptr;
  const Status status = driver_.check(driver_.cuDevicePrimaryCtxRetain(&context, devices_[gpu]),
                                      "opening GPU " + std::to_string(gpu) + " as a relay");
  if (!status.ok()) return status;
  auto endpoint = endpoint_for(gpu, context, true);
  if (!endpoint.ok()) {
    refused_.push_back(context);
    return endpoint.status();
  }
  relay_endpoints_[gpu] = endpoint.value();
  return {};
}

// Targets: every relay's context, and those that the program itself has made active.
Status Engine::Impl::adopt_active_contexts() {
  Status first;
  for (size_t gpu = 0; gpu < devices_.size(); ++gpu) {
    if (seen_primaries_[gpu]) continue;
    const Status status = adopt_primary(static_cast<int>(gpu));
    if (!status.ok() && first.ok()) first = status;
  }
  return first;
}

Status Engine::Impl::adopt_primary(int gpu) {
  unsigned flags = 0;
  int active = 0;
  driver_.cuDevicePrimaryCtxGetState(devices_[gpu], &flags, &active);
  CUcontext context = nullptr;
  if (active == 0 || driver_.cuDevicePrimaryCtxRetain(&context, devices_[gpu]) != CUDA_SUCCESS)
    return {};
  seen_primaries_[gpu] = true;
  // An endpoint keeps the context for good; a second hold would only be given back.
  const bool known = find_endpoint(context) != nullptr || is_settled(context);
  if (known) driver_.cuDevicePrimaryCtxRelease(devices_[gpu]);
  return adopt(gpu, context, !known);
}

// A context that could not be made a target is not tried again at every pinning of memory.
Status Engine::Impl::adopt(int gpu, CUcontext context, bool retained) {
  if (is_settled(context)) return {};
  auto endpoint = endpoint_for(gpu, context, retained);
  const Status status = note(endpoint.ok() ? make_target(*endpoint.value()) : endpoint.status());
  if (!status.ok()) refused_.push_back(context);
  return status;
}

bool Engine::Impl::is_settled(CUcontext context) {
  return find_target(context) != nullptr ||
         std::find(refused_.begin(), refused_.end(), context) != refused_.end();
}

Result<Endpoint*> Engine::Impl::endpoint_for(int gpu, CUcontext context, bool retained) {
  if (Endpoint* known = find_endpoint(context)) return known;
  auto endpoint = Endpoint::open(driver_, options_, devices_[gpu], gpu, context, retained);
  if (!endpoint.ok()) return endpoint.status();
  if (copy_engine_ != nullptr) {
    const Status prepared = copy_engine_->prepare(*endpoint.value());
    if (!prepared.ok()) return prepared;
  }
  endpoints_.push_back(std::move(endpoint).value());
  return endpoints_.back().get();
}

Status Engine::Impl::make_target(Endpoint& endpoint) {
  const int gpu = endpoint.gpu();
  std::vector<Endpoint*> relays;
  for (size_t relay = 0; relay < relay_endpoints_.size(); ++relay) {
    if (relay_endpoints_[relay] == nullptr || !relays_[relay][gpu]) continue;
    cuda::ScopedContext scope(driver_, relay_endpoints_[relay]->context());
    if (scope.status() != CUDA_SUCCESS) continue;
    const CUresult enabled = driver_.cuCtxEnablePeerAccess(endpoint.context(), 0);
    if (enabled == CUDA_SUCCESS || enabled == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
      relays.push_back(relay_endpoints_[relay]);
  }
  // Relays of the target's own socket first: when few paths suffice, they cross nothing shared.
  const auto numa_node = [this](int ordinal) {
    int node = -1;
    driver_.cuDeviceGetAttribute(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, devices_[ordinal]);
    return node;
  };
  const int home = numa_node(gpu);
  std::stable_partition(relays.begin(), relays.end(),
                        [&](const Endpoint* relay) { return numa_node(relay->gpu()) == home; });
  auto target =
      Target::open(driver_, options_, costs_, endpoint, std::move(relays), copy_engine_.get());
  if (!target.ok()) return target.status();
  targets_.push_back(std::move(target).value());
  return {};
}

// Cheap, and beside copies of other threads: most pinnings bring nothing new.
bool Engine::Impl::has_news(CUcontext context) {
  std::shared_lock lock(mutex_);
  if (context != nullptr && !is_settled(context)) return true;
  for (size_t gpu = 0; gpu < devices_.size(); ++gpu) {
    unsigned flags = 0;
    int active = 0;
    if (!seen_primaries_[gpu]) driver_.cuDevicePrimaryCtxGetState(devices_[gpu], &flags, &active);
    if (active != 0) return true;
  }
  return false;
}

Status Engine::Impl::add_context(CUcontext context) {
  if (!has_relays_ || !has_news(context)) return {};
  cuda::RelaxedCapture relaxed(driver_);
  cuda::ScopedContext scope(driver_);
  std::unique_lock lock(mutex_);
  Status status = adopt_active_contexts();
  if (!status.ok() || context == nullptr || is_settled(context)) return status;
  CUdevice device = 0;
  CUresult asked = scope.enter(context);
  if (asked == CUDA_SUCCESS) asked = driver_.cuCtxGetDevice(&device);
  status = driver_.check(asked, "asking a context for its GPU");
  if (!status.ok()) return status;
  const auto found = std::find(devices_.begin(), devices_.end(), device);
  if (found == devices_.end()) return Status::error("a context is of no known GPU");
  return adopt(static_cast<int>(found - devices_.begin()), context, false);
}

void Engine::Impl::forget_context(CUcontext context) {
  stager_.forget_context(context);
  std::unique_lock lock(mutex_);
  std::erase(refused_, context);
  Endpoint* endpoint = find_endpoint(context);
  if (endpoint == nullptr) return;
  std::vector<Target*> users;
  for (const auto& target : targets_)
    if (target->uses(*endpoint)) users.push_back(target.get());
  if (copy_engine_ != nullptr) copy_engine_->forget(*endpoint);
  const bool is_drained = drain(users, kDrainLimit);
  endpoint->abandon();
  if (endpoint->is_primary()) seen_primaries_[endpoint->gpu()] = false;
  std::replace(relay_endpoints_.begin(), relay_endpoints_.end(), endpoint,
               static_cast<Endpoint*>(nullptr));
  for (Target* target : users) {
    target->drop_relay(*endpoint);
    if (!is_drained) target->retire_in_flight();
    if (&target->endpoint() != endpoint) continue;
    target->abandon();
    target->add_counts(forgotten_);
  }
  std::erase_if(targets_, [&](const auto& target) { return &target->endpoint() == endpoint; });
}

Endpoint* Engine::Impl::find_endpoint(CUcontext context) {
  for (const auto& endpoint : endpoints_)
    if (endpoint->context() == context && !endpoint->is_abandoned()) return endpoint.get();
  return nullptr;
}

Target* Engine::Impl::find_target(CUcontext context) {
  for (const auto& target : targets_)
    if (target->endpoint().context() == context) return target.get();
  return nullptr;
}

// The stream says which context is meant; its GPU must be the memory's.
Target* Engine::Impl::find_target(const Classification& memory, CUstream stream) {
  CUcontext context = nullptr;
  if (driver_.cuStreamGetCtx(stream, &context) != CUDA_SUCCESS) return nullptr;
  if (memory.context != nullptr && memory.context != context) return nullptr;
  Target* target = find_target(context);
  return target != nullptr && target->endpoint().gpu() == memory.gpu ? target : nullptr;
}

// Before anything is asked of the driver: no more than a compare for most small copies.
bool Engine::Impl::may_gain(const Batch& batch) const {
  const uint64_t size_bytes = size_of(batch);
  if (size_bytes >= threshold_bytes(batch.direction)) return true;
  // Small segments are slow natively, so a batch may gain from fewer bytes.
  return batch.segments.size() > 1 &&
         plan(costs_, {.direction = batch.direction,
                       .size_bytes = size_bytes,
                       .segments = batch.segments.size(),
                       .paths = cuda::kMaxPaths,
                       .movers = movers(),
                       .asked_threshold_bytes = options_.threshold_bytes})
                 .way != Way::kNative;
}

GpuSet Engine::Impl::relays_for(int gpu) {
  std::shared_lock lock(mutex_);
  GpuSet relays = 0;
  for (size_t relay = 0; relay < relay_endpoints_.size(); ++relay)
    if (relay_endpoints_[relay] != nullptr && relays_[relay][gpu])
      relays |= gpu_bit(static_cast<int>(relay));
  return relays;
}

GpuSet Engine::Impl::grant(CUmemoryPool pool, int gpu) {
  const GpuSet relays = relays_for(gpu);
  const cuda::RelaxedCapture relaxed(driver_);
  return relays != 0 && grant_access(driver_, pool, relays) ? relays : 0;
}

// Of a range that its own GPU may not write, relays are not to write either.
GpuSet Engine::Impl::grant(CUdeviceptr address, size_t size_bytes) {
  const int gpu = has_relays_ ? gpu_of_mappings(driver_, address, size_bytes) : -1;
  if (gpu < 0 ||
      gpus_with_access(driver_, nullptr, address, Direction::kHostToDevice, gpu_bit(gpu)) == 0)
    return 0;
  const GpuSet relays = relays_for(gpu);
  const cuda::RelaxedCapture relaxed(driver_);
  return relays != 0 && grant_access(driver_, address, size_bytes, relays) ? relays : 0;
}

std::vector<std::pair<CUmemoryPool, GpuSet>> Engine::Impl::grant_default_pools() {
  std::vector<std::pair<CUmemoryPool, GpuSet>> granted;
  for (size_t gpu = 0; gpu < devices_.size(); ++gpu) {
    CUmemoryPool pool = nullptr;
    if (driver_.cuDeviceGetDefaultMemPool(&pool, devices_[gpu]) != CUDA_SUCCESS) continue;
    if (const GpuSet gpus = grant(pool, static_cast<int>(gpu))) granted.emplace_back(pool, gpus);
  }
  return granted;
}

Outcome Engine::Impl::submit(const Batch& batch) {
  if (!may_gain(batch)) return Verdict::kBelowThreshold;
  if (!has_relays_) return Verdict::kNoRelay;
  const Classification what = classify(driver_, batch, relay_gpus_);
  if (what.verdict != Verdict::kAccelerated) return what.verdict;
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  if (driver_.cuStreamIsCapturing(batch.stream, &capture) != CUDA_SUCCESS ||
      capture != CU_STREAM_CAPTURE_STATUS_NONE)
    return Verdict::kCapturing;
  // A thread that prepares or forgets a context may be waiting for a GPU: no copy waits for it.
  std::shared_lock lock(mutex_, std::try_to_lock);
  if (!lock) return Verdict::kNotReady;
  Target* target = find_target(what, batch.stream);
  if (target == nullptr) return Verdict::kForeignContext;
  if (!target->has_relay(what.allowed)) return Verdict::kNoRelay;
  return target->submit(batch, path_limit.load(std::memory_order_relaxed), what.allowed);
}

// True when no transfer of these targets is in flight. Reads host memory only.
template <typename Targets>
bool Engine::Impl::drain(const Targets& targets, std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (true) {
    bool idle = true;
    for (const auto& target : targets) idle = target->harvest() && idle;
    if (idle || std::chrono::steady_clock::now() >= deadline) return idle;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

void Engine::Impl::collect(int wait_ms, PathCounts& counts) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(wait_ms);
  std::shared_lock lock(mutex_, std::try_to_lock);
  while (!lock && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    (void)lock.try_lock();
  }
  if (!lock) return;
  drain(targets_, std::chrono::milliseconds(wait_ms));
  for (const PathCount& count : forgotten_.all()) counts.add(count);
  for (const auto& target : targets_) target->add_counts(counts);
  if (copy_engine_ == nullptr) return;
  while (!copy_engine_->is_idle() && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  copy_engine_->add_counts(counts);
}

std::vector<std::string> Engine::Impl::problems() {
  std::shared_lock lock(mutex_);
  return problems_;
}

bool Engine::Impl::can_accelerate() {
  std::shared_lock lock(mutex_);
  return std::any_of(targets_.begin(), targets_.end(),
                     [](const auto& target) { return target->has_relay(); });
}

Engine::Impl::~Impl() {
  std::unique_lock lock(mutex_);
  drain(targets_, kDrainLimit);
  cuda::RelaxedCapture relaxed(driver_);
  stager_.close();
  targets_.clear();
  copy_engine_.reset();
  endpoints_.clear();
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

Result<std::unique_ptr<Engine>> Engine::open(const cuda::Driver& driver, const Options& options) {
  auto impl = std::make_unique<Impl>(driver, options);
  const Status status = impl->open();
  if (!status.ok()) return status;
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

Status Engine::add_context(CUcontext context) { return impl_->add_context(context); }
void Engine::forget_context(CUcontext context) { impl_->forget_context(context); }
GpuSet Engine::grant(CUmemoryPool pool, int gpu) { return impl_->grant(pool, gpu); }
GpuSet Engine::grant(CUdeviceptr address, size_t size_bytes) {
  return impl_->grant(address, size_bytes);
}
std::vector<std::pair<CUmemoryPool, GpuSet>> Engine::grant_default_pools() {
  return impl_->grant_default_pools();
}
Outcome Engine::submit(const Batch& batch) noexcept { return impl_->submit(batch); }
Outcome Engine::submit(const Transfer& transfer) noexcept {
  const Segment whole{transfer.host, transfer.device, transfer.size_bytes};
  return impl_->submit({transfer.direction, {&whole, 1}, transfer.stream, transfer.priority});
}
std::optional<CUresult> Engine::stage(const Transfer& transfer, bool is_synchronous) {
  return impl_->stage(transfer, is_synchronous);
}
uint64_t Engine::threshold_bytes() const {
  return std::min(impl_->threshold_bytes(Direction::kHostToDevice),
                  impl_->threshold_bytes(Direction::kDeviceToHost));
}
void Engine::limit_paths(int paths) { impl_->path_limit.store(paths); }
void Engine::collect(int wait_ms, PathCounts& counts) noexcept { impl_->collect(wait_ms, counts); }
std::vector<PathCount> Engine::collect(int wait_ms) {
  const auto counts = std::make_unique<PathCounts>();
  impl_->collect(wait_ms, *counts);
  return {counts->all().begin(), counts->all().end()};
}
bool Engine::can_accelerate() const { return impl_->can_accelerate(); }
std::vector<std::string> Engine::problems() const { return impl_->problems(); }

}  // namespace braid::multipath
