#include "multipath/engine.h"

#include "base/try.h"
#include "cuda/relaxed_capture.h"
#include "multipath/context_registry.h"
#include "multipath/cost_file.h"
#include "multipath/grants.h"
#include "multipath/planner.h"
#include "multipath/relay_topology.h"
#include "multipath/staging/stager.h"
#include "multipath/submitter.h"

namespace braid::multipath {

struct Engine::Impl {
  Impl(const cuda::Driver& cuda_driver, const Options& all_options, RelayTopology all_relays,
       const CostModel& costs, Notify notify)
      : driver(cuda_driver),
        options(all_options),
        relays(std::move(all_relays)),
        planner(costs, options),
        peers(driver, options, relays),
        registry(driver, options, relays, planner, peers, notify),
        submitter(driver, relays, planner, peers, registry),
        stager(driver, options, submitter) {}
  ~Impl() {
    const cuda::RelaxedCapture relaxed(driver);
    stager.close();
  }

  void forget_context(CUcontext context, ContextRegistry::End end) {
    const cuda::RelaxedCapture relaxed(driver);
    stager.forget_context(context);
    registry.forget(context, end);
  }
  std::vector<std::string> problems();

  const cuda::Driver& driver;
  const Options options;
  const RelayTopology relays;
  const GpuSet relay_gpus = relays.all();  // none: there is nothing to gain
  const Planner planner;
  PeerProcesses peers;
  ContextRegistry registry;
  Submitter submitter;
  staging::Stager stager;    // its chunks are submitted like other copies
  std::string cost_problem;  // constant once the engine is open
};

Result<std::unique_ptr<Engine>> Engine::open(const cuda::Driver& driver, const Options& options) {
  BRAID_LET(engine, create(driver, options));
  (void)engine->add_context(nullptr);  // what fails is in problems()
  engine->request_relays(kEveryGpu);
  Result<bool> is_more = true;
  while (is_more.ok() && is_more.value()) is_more = engine->open_next_relay();
  BRAID_TRY(is_more.status());
  engine->open_targets();
  return std::move(engine);
}

Result<std::unique_ptr<Engine>> Engine::create(const cuda::Driver& driver, const Options& options,
                                               Notify notify) {
  BRAID_LET(relays, RelayTopology::find(driver, options));
  const LoadedCosts loaded = load_costs(driver, options);
  auto impl = std::make_unique<Impl>(driver, options, std::move(relays), loaded.costs, notify);
  if (!loaded.problem.ok())
    impl->cost_problem = loaded.problem.message() + ". Until then braid goes by its defaults";
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

std::vector<std::string> Engine::Impl::problems() {
  std::vector<std::string> all = registry.problems();
  if (!peers.problem().empty()) all.push_back(peers.problem());
  if (!cost_problem.empty()) all.insert(all.begin(), cost_problem);
  return all;
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

void Engine::request_relays(GpuSet gpus) noexcept { impl_->registry.request_relays(gpus); }
// With nothing to gain, nothing is opened.
Result<bool> Engine::open_next_relay() {
  return impl_->relay_gpus != 0 ? impl_->registry.open_next_relay() : Result<bool>(false);
}
void Engine::open_targets() {
  if (impl_->relay_gpus != 0) impl_->registry.open_targets();
}
bool Engine::has_relay_requests() const noexcept {
  return impl_->relay_gpus != 0 && impl_->registry.has_relay_requests();
}
bool Engine::are_relays_open() const noexcept {
  return impl_->relay_gpus == 0 || impl_->registry.are_relays_open();
}
Status Engine::add_context(CUcontext context) {
  return impl_->relay_gpus != 0 ? impl_->registry.add(context) : Status();
}
void Engine::forget_context(CUcontext context) {
  impl_->forget_context(context, ContextRegistry::End::kDestroyed);
}
void Engine::release_context(CUcontext context) {
  impl_->forget_context(context, ContextRegistry::End::kReleased);
}
GpuSet Engine::grant(CUmemoryPool pool, int gpu) {
  return grant_to_relays(impl_->driver, impl_->registry, pool, gpu);
}
GpuSet Engine::grant(CUdeviceptr address, size_t size_bytes) {
  if (impl_->relay_gpus == 0) return 0;
  return grant_to_relays(impl_->driver, impl_->registry, address, size_bytes);
}
std::vector<std::pair<CUmemoryPool, GpuSet>> Engine::grant_default_pools() {
  return multipath::grant_default_pools(impl_->driver, impl_->registry);
}
uint64_t Engine::release_buffers(CUdevice device) noexcept {
  return impl_->registry.release_buffers(device);
}
bool Engine::restore_buffers() noexcept try {
  return impl_->registry.restore_buffers();
} catch (...) {
  return false;  // no memory for the words of what failed
}
ProcessRow& Engine::row() noexcept { return impl_->peers.row(); }
std::string Engine::describe_waits() { return impl_->registry.describe_waits(); }
size_t Engine::count_relays(std::span<RelayCount> into) noexcept {
  return impl_->registry.count_relays(into);
}
Outcome Engine::submit(const Batch& batch) noexcept { return impl_->submitter.submit(batch); }
Outcome Engine::forecast(const Batch& batch) noexcept {
  return impl_->submitter.submit(batch, Intent::kForecast);
}
std::optional<Staged> Engine::stage(const Batch& copy, bool is_synchronous) {
  if (impl_->peers.is_off()) return std::nullopt;
  return impl_->stager.copy(copy, is_synchronous);
}
uint64_t Engine::threshold_bytes() const { return impl_->planner.threshold_bytes(); }
void Engine::limit_paths(int paths) { impl_->submitter.limit_paths(paths); }
void Engine::collect(int wait_ms, PathCounts& counts) noexcept {
  impl_->registry.collect(std::chrono::milliseconds(wait_ms), counts);
}
std::vector<PathCount> Engine::collect(int wait_ms) {
  const auto counts = std::make_unique<PathCounts>();
  collect(wait_ms, *counts);
  return {counts->all().begin(), counts->all().end()};
}
std::vector<std::string> Engine::problems() const { return impl_->problems(); }

}  // namespace braid::multipath
