#include "multipath/engine.h"

#include <atomic>

#include "cuda/relaxed_capture.h"
#include "multipath/classify.h"
#include "multipath/copy_engine/mover.h"
#include "multipath/copy_engine/station.h"
#include "multipath/cost_file.h"
#include "multipath/grants.h"
#include "multipath/late_frees.h"
#include "multipath/planner.h"
#include "multipath/pointer_facts.h"
#include "multipath/relays.h"
#include "multipath/roster.h"
#include "multipath/staging/stager.h"

namespace braid::multipath {
namespace {

constexpr int kStreamsOfBothMovers = kStreamsPerContext + copy_engine::kStreamsPerContext;

// With fewer queues than braid has streams in a context, a stream of the program's that waits on
// one GPU would hold up the program's streams on another (seen on 4xH200 with 1).
Status check_hardware_queues(const Options& options) {
  if (options.hardware_queues >= kStreamsPerContext) return {};
  return Status::error("CUDA_DEVICE_MAX_CONNECTIONS is " + std::to_string(options.hardware_queues) +
                           ", and streams that share a hardware queue wait for each other",
                       "Unset it, or set it to " + std::to_string(kStreamsPerContext) + " or more");
}

// The largest transfers take tens of milliseconds; those that take longer are held back.
constexpr std::chrono::milliseconds kEndOfTransfers{50};

}  // namespace

int wanted_hardware_queues() { return kStreamsOfBothMovers + kDefaultHardwareQueues; }

bool has_copy_engines(const Options& options) {
  if (options.mover != MoverChoice::kAuto) return options.mover == MoverChoice::kCopyEngine;
  return options.hardware_queues >= kStreamsOfBothMovers;
}

struct Engine::Impl {
  Impl(const cuda::Driver& cuda_driver, const Options& all_options, Relays all_relays,
       const CostModel& costs, std::unique_ptr<CopyEngineMover> copy_engine)
      : driver(cuda_driver),
        options(all_options),
        relays(std::move(all_relays)),
        planner(costs, options, copy_engine != nullptr),
        late_frees(driver),
        roster(driver, options, relays, planner, std::move(copy_engine)),
        stager(driver, options, [this](const Transfer& chunk) {
          const Segment whole{chunk.host, chunk.device, chunk.size_bytes};
          return submit({chunk.direction, {&whole, 1}, chunk.stream, chunk.priority});
        }) {}
  ~Impl() {
    const cuda::RelaxedCapture relaxed(driver);
    stager.close();
  }

  Outcome submit(const Batch& batch);
  std::optional<CUresult> free_later(CUdeviceptr address, CUstream stream);
  void forget_context(CUcontext context, Roster::End end) {
    const cuda::RelaxedCapture relaxed(driver);
    stager.forget_context(context);
    late_frees.forget_context(context);
    roster.forget(context, end);
  }
  std::vector<std::string> problems();

  const cuda::Driver& driver;
  const Options options;
  const Relays relays;
  const GpuSet relay_gpus = relays.all();  // none: there is nothing to gain
  const Planner planner;
  LateFrees late_frees;  // after the movers, which may name the memory
  Roster roster;
  staging::Stager stager;  // its chunks are transfers like others
  std::atomic<int> path_limit{0};
  std::string cost_problem;  // constant once the engine is open
};

Result<std::unique_ptr<Engine>> Engine::open(const cuda::Driver& driver, const Options& options) {
  auto engine = prepare(driver, options);
  if (!engine.ok()) return engine;
  Result<bool> is_more = true;
  while (is_more.ok() && is_more.value()) is_more = engine.value()->open_next();
  if (!is_more.ok()) return is_more.status();
  engine.value()->begin();
  return engine;
}

Result<std::unique_ptr<Engine>> Engine::prepare(const cuda::Driver& driver,
                                                const Options& options) {
  auto relays = Relays::find(driver, options);
  if (!relays.ok()) return relays.status();
  if (const Status queues = check_hardware_queues(options); !queues.ok()) return queues;
  const bool has_relays = relays.value().all() != 0;
  const LoadedCosts loaded = load_costs(driver, options);
  std::unique_ptr<CopyEngineMover> copy_engine;
  if (has_relays && has_copy_engines(options)) {
    auto mover = CopyEngineMover::open(driver, options, copy_engine::pace_costs(loaded.costs));
    if (!mover.ok()) return mover.status();
    copy_engine = std::move(mover).value();
  }
  auto impl = std::make_unique<Impl>(driver, options, std::move(relays).value(), loaded.costs,
                                     std::move(copy_engine));
  if (!loaded.problem.ok())
    impl->cost_problem = loaded.problem.message() + ". Until then braid goes by its defaults";
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

Outcome Engine::Impl::submit(const Batch& batch) {
  const uint64_t size_bytes = size_of(batch);
  if (!planner.may_gain(batch, size_bytes)) return Verdict::kBelowThreshold;
  if (relay_gpus == 0) return Verdict::kNoRelay;
  const Classification what = classify(driver, batch, relay_gpus);
  if (what.verdict != Verdict::kAccelerated) return what.verdict;
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  if (driver.cuStreamIsCapturing(batch.stream, &capture) != CUDA_SUCCESS ||
      capture != CU_STREAM_CAPTURE_STATUS_NONE)
    return Verdict::kCapturing;
  const Roster::Use use = roster.use(what, batch.stream);
  if (use.target == nullptr) return use.verdict;
  const Outcome outcome =
      use.target->submit(batch, size_bytes, path_limit.load(std::memory_order_relaxed), what);
  if (outcome.mover == Mover::kKernel) roster.watch_relays();
  return outcome;
}

// What a pool gave does not go by copy engines (planner.cpp). What is no plain memory is for the
// driver to refuse, and so is a stream that records a graph.
std::optional<CUresult> Engine::Impl::free_later(CUdeviceptr address, CUstream stream) {
  late_frees.release();
  if (late_frees.holds(address)) return CUDA_ERROR_INVALID_VALUE;
  if (!roster.feeds_copy_engines()) return std::nullopt;
  const DeviceFacts memory = pointer_facts(driver, address).device;
  if (memory.kind != DeviceFacts::Kind::kPlain || memory.extent.begin != address)
    return std::nullopt;
  if (roster.settle(kEndOfTransfers)) return std::nullopt;
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  if (driver.cuStreamIsCapturing(stream, &capture) != CUDA_SUCCESS ||
      capture != CU_STREAM_CAPTURE_STATUS_NONE)
    return std::nullopt;
  if (!late_frees.add(address, memory.context, stream)) return std::nullopt;
  return CUDA_SUCCESS;
}

std::vector<std::string> Engine::Impl::problems() {
  std::vector<std::string> all = roster.problems();
  if (!cost_problem.empty()) all.insert(all.begin(), cost_problem);
  return all;
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

// With nothing to gain, nothing is opened.
Result<bool> Engine::open_next() {
  return impl_->relay_gpus != 0 ? impl_->roster.open_next() : Result<bool>(false);
}
void Engine::begin() {
  if (impl_->relay_gpus != 0) impl_->roster.begin();
}
bool Engine::is_opening() const noexcept {
  return impl_->relay_gpus != 0 && impl_->roster.is_opening();
}
Status Engine::add_context(CUcontext context) {
  return impl_->relay_gpus != 0 ? impl_->roster.add(context) : Status();
}
void Engine::forget_context(CUcontext context) {
  impl_->forget_context(context, Roster::End::kDestroyed);
}
void Engine::release_context(CUcontext context) {
  impl_->forget_context(context, Roster::End::kReleased);
}
GpuSet Engine::grant(CUmemoryPool pool, int gpu) {
  return grant_to_relays(impl_->driver, impl_->roster, pool, gpu);
}
GpuSet Engine::grant(CUdeviceptr address, size_t size_bytes) {
  if (impl_->relay_gpus == 0) return 0;
  return grant_to_relays(impl_->driver, impl_->roster, address, size_bytes);
}
std::vector<std::pair<CUmemoryPool, GpuSet>> Engine::grant_default_pools() {
  return multipath::grant_default_pools(impl_->driver, impl_->roster);
}
Outcome Engine::submit(const Batch& batch) noexcept { return impl_->submit(batch); }
Outcome Engine::submit(const Transfer& transfer) noexcept {
  const Segment whole{transfer.host, transfer.device, transfer.size_bytes};
  return impl_->submit({transfer.direction, {&whole, 1}, transfer.stream, transfer.priority});
}
std::optional<CUresult> Engine::free_later(CUdeviceptr address, CUstream stream) noexcept try {
  return impl_->free_later(address, stream);
} catch (...) {
  return CUDA_ERROR_OUT_OF_MEMORY;  // nothing has been freed
}
void Engine::release_late() noexcept { impl_->late_frees.release(); }
std::optional<Staged> Engine::stage(const Transfer& transfer, bool is_synchronous) {
  return impl_->stager.copy(transfer, is_synchronous);
}
uint64_t Engine::threshold_bytes() const { return impl_->planner.threshold_bytes(); }
void Engine::limit_paths(int paths) { impl_->path_limit.store(paths); }
void Engine::collect(int wait_ms, PathCounts& counts) noexcept {
  impl_->roster.collect(std::chrono::milliseconds(wait_ms), counts);
}
std::vector<PathCount> Engine::collect(int wait_ms) {
  const auto counts = std::make_unique<PathCounts>();
  collect(wait_ms, *counts);
  return {counts->all().begin(), counts->all().end()};
}
bool Engine::can_accelerate() const { return impl_->roster.has_target_with_relay(); }
std::vector<std::string> Engine::problems() const { return impl_->problems(); }
void Engine::report_problems(void (*say)(const char* problem)) noexcept {
  impl_->roster.report_problems(say);
}

}  // namespace braid::multipath
