#include "tools/workbench.h"

#include "base/try.h"

namespace braid::tools {

Status Workbench::open_gpus() {
  int count = 0;
  BRAID_TRY(driver_.check(driver_.cuDeviceGetCount(&count), "counting the GPUs"));
  if (target_ < 0 || target_ >= count)
    return Status::error("there is no GPU " + std::to_string(target_),
                         "Name a target from 0 to " + std::to_string(count - 1));
  for (int gpu = 0; gpu < count; ++gpu) {
    CUdevice device = 0;
    const std::string what = "opening GPU " + std::to_string(gpu);
    BRAID_TRY(driver_.check(driver_.cuDeviceGet(&device, gpu), what));
    BRAID_TRY(driver_.check(
        driver_.cuDevicePrimaryCtxRetain(&contexts_.emplace_back(nullptr), device), what));
  }
  return driver_.check(driver_.cuCtxSetCurrent(contexts_[target_]), "choosing the target GPU");
}

Status Workbench::open_engine(const Options& options) {
  begin_ = objects_.event();
  end_ = objects_.event();
  BRAID_TRY(objects_.status());
  BRAID_LET(engine, multipath::Engine::open(driver_, options));
  engine_ = std::move(engine);
  BRAID_LET(warm_up, WarmUp::open(driver_, *engine_));
  warm_up_ = std::move(warm_up);
  return {};
}

Status Workbench::measure_limit(Flow flow, Readings& limit) {
  if (limit_ == nullptr) {
    BRAID_LET(opened, Limit::open(driver_, contexts_));
    limit_ = std::move(opened);
  }
  BRAID_LET(gbps, limit_->measure(flow));
  limit.values.push_back(gbps);
  return {};
}

Result<double> Workbench::elapsed_ms() const {
  float elapsed_ms = 0;
  BRAID_TRY(driver_.check(driver_.cuEventElapsedTime(&elapsed_ms, begin_, end_), "timing"));
  return static_cast<double>(elapsed_ms);
}

}  // namespace braid::tools
