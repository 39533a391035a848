#include "multipath/engine.h"

#include "base/try.h"
#include "cuda/relaxed_capture.h"

namespace braid::multipath {

Engine::Engine(const cuda::Driver& driver, const Options& options, RelayTopology relays,
               const LoadedCosts& loaded, Notify notify)
    : driver_(driver),
      options_(options),
      relays_(std::move(relays)),
      planner_(loaded.costs, options_),
      peers_(driver_, options_, relays_),
      registry_(driver_, options_, relays_, planner_, peers_, notify),
      submitter_(driver_, relays_, planner_, peers_, registry_),
      stager_(driver_, options_, submitter_),
      cost_problem_(loaded.problem) {}

Engine::~Engine() {
  const cuda::RelaxedCapture relaxed(driver_);
  stager_.close();
}

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
  const LoadedCosts costs = load_costs(driver, options);
  return std::unique_ptr<Engine>(new Engine(driver, options, std::move(relays), costs, notify));
}

Status Engine::add_context(CUcontext context) {
  if (!may_relay()) return {};
  if (context != nullptr) return registry_.add(context);
  Status first;
  for (int gpu = 0; gpu < relays_.gpu_count(); ++gpu)
    if (const Status status = registry_.add_primary(gpu); first.ok()) first = status;
  return first;
}

Result<CUdevice> Engine::device_of(CUcontext context) {
  BRAID_LET(gpu, registry_.gpu_of(context));
  return relays_.device(gpu);
}

void Engine::forget(CUcontext context, ContextRegistry::End how) {
  const cuda::RelaxedCapture relaxed(driver_);
  stager_.forget_context(context, how);
  registry_.forget(context, how);
}

GpuSet Engine::relays_to_grant(CUdeviceptr address, size_t size_bytes) {
  if (!may_relay()) return 0;
  const int gpu = gpu_of_mappings(driver_, address, size_bytes);
  if (gpu < 0 ||
      gpus_with_access(driver_, nullptr, address, Direction::kHostToDevice, gpu_bit(gpu)) == 0)
    return 0;
  return relays_to_grant(gpu);
}

bool Engine::grant_to(GpuSet relays, CUmemoryPool pool) {
  const cuda::RelaxedCapture relaxed(driver_);
  return grant_access(driver_, pool, relays);
}

bool Engine::grant_to(GpuSet relays, CUdeviceptr address, size_t size_bytes) {
  const cuda::RelaxedCapture relaxed(driver_);
  return grant_access(driver_, address, size_bytes, relays);
}

std::vector<std::pair<CUmemoryPool, int>> Engine::default_pools() {
  std::vector<std::pair<CUmemoryPool, int>> pools;
  for (int gpu = 0; gpu < relays_.gpu_count(); ++gpu) {
    CUmemoryPool pool = nullptr;
    if (driver_.cuDeviceGetDefaultMemPool(&pool, relays_.device(gpu)) == CUDA_SUCCESS)
      pools.emplace_back(pool, gpu);
  }
  return pools;
}

size_t Engine::grant_default_pools() {
  size_t granted = 0;
  for (const auto& [pool, gpu] : default_pools())
    if (const GpuSet relays = relays_to_grant(gpu); relays != 0)
      granted += grant_to(relays, pool) ? 1 : 0;
  return granted;
}

bool Engine::restore_buffers() noexcept try { return registry_.restore_buffers(); } catch (...) {
  return false;  // no memory for the words of what failed
}

std::optional<Staged> Engine::stage(const Batch& copy, bool is_synchronous) {
  if (peers_.is_off()) return std::nullopt;
  return stager_.copy(copy, is_synchronous);
}

std::vector<PathCount> Engine::collect(int wait_ms) {
  const auto counts = std::make_unique<PathCounts>();
  collect(wait_ms, *counts);
  return {counts->all().begin(), counts->all().end()};
}

std::vector<std::string> Engine::problems() {
  std::vector<std::string> all = registry_.problems();
  if (!relays_.problem().empty()) all.push_back(relays_.problem() + ". Every copy stays native");
  if (!relays_.reserved().empty()) all.push_back(relays_.reserved());
  if (!peers_.problem().empty()) all.push_back(peers_.problem());
  if (!cost_problem_.ok())
    all.insert(all.begin(), cost_problem_.message() + ". Until then braid goes by its defaults");
  return all;
}

}  // namespace braid::multipath
