#include "multipath/relay_topology.h"

#include <algorithm>

#include "base/try.h"
#include "cuda/tools.h"

namespace braid::multipath {

namespace {

// In the modes other than the default one process has the GPU for itself, or nobody: a context of
// braid's would keep its owner out.
int compute_mode(const cuda::Driver& driver, CUdevice device) {
  int mode = CU_COMPUTEMODE_DEFAULT;
  driver.cuDeviceGetAttribute(&mode, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, device);
  return mode;
}

const char* mode_name(int mode) {
  return mode == CU_COMPUTEMODE_PROHIBITED ? "prohibited" : "exclusive-process";
}

bool reaches(const cuda::Driver& driver, CUdevice relay, CUdevice target) {
  if (relay == target) return false;  // a driver calls the question invalid
  int access = 0;
  int atomics = 0;
  driver.cuDeviceCanAccessPeer(&access, relay, target);
  driver.cuDeviceGetP2PAttribute(&atomics, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, relay,
                                 target);
  return access != 0 && atomics != 0;
}

}  // namespace

bool can_relay(const cuda::Driver& driver, CUdevice relay, CUdevice target) {
  return compute_mode(driver, relay) == CU_COMPUTEMODE_DEFAULT && reaches(driver, relay, target);
}

Result<RelayTopology> RelayTopology::find(const cuda::Driver& driver, const Options& options) {
  RelayTopology found;
  BRAID_TRY(found.list_devices(driver));
  BRAID_TRY(found.check(options.relays));
  found.problem_ = cuda::reason_to_stay_native(driver);
  for (const CUdevice target : found.devices_) {
    GpuSet relays = 0;
    for (int gpu = 0; gpu < found.gpu_count(); ++gpu)
      if (found.problem_.empty() && options.relays.allows(gpu) &&
          can_relay(driver, found.device(gpu), target))
        relays |= gpu_bit(gpu);
    found.of_target_.push_back(relays);
    found.all_ |= relays;
    int node = -1;
    driver.cuDeviceGetAttribute(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, target);
    found.numa_nodes_.push_back(node);
  }
  if (found.problem_.empty()) found.note_reserved(driver, options.relays);
  return found;
}

// Only GPUs that could help otherwise, and that the user has not left out.
void RelayTopology::note_reserved(const cuda::Driver& driver, const RelayChoice& choice) {
  for (int gpu = 0; gpu < gpu_count(); ++gpu) {
    const int mode = compute_mode(driver, device(gpu));
    if (mode == CU_COMPUTEMODE_DEFAULT || !choice.allows(gpu) ||
        std::none_of(devices_.begin(), devices_.end(),
                     [&](CUdevice target) { return reaches(driver, device(gpu), target); }))
      continue;
    reserved_ += (reserved_.empty() ? "GPU " : ", GPU ") + std::to_string(gpu) + " is in " +
                 mode_name(mode) + " mode";
  }
  if (!reserved_.empty())
    reserved_ +=
        ", and so does not relay: the mode keeps the GPU for others. `nvidia-smi -c DEFAULT` lets "
        "it";
}

Status RelayTopology::list_devices(const cuda::Driver& driver) {
  int count = 0;
  BRAID_TRY(driver.check(driver.cuDeviceGetCount(&count), "counting the GPUs"));
  for (int gpu = 0; gpu < count; ++gpu) {
    CUdevice device = 0;
    BRAID_TRY(driver.check(driver.cuDeviceGet(&device, gpu), "opening GPU " + std::to_string(gpu)));
    devices_.push_back(device);
  }
  return {};
}

Status RelayTopology::check(const RelayChoice& choice) const {
  for (const int gpu : choice.gpus)
    if (gpu >= gpu_count())
      return Status::error("BRAID_RELAYS names GPU " + std::to_string(gpu) +
                               ", but this process sees " + std::to_string(gpu_count()) + " GPUs",
                           "Name GPUs from 0 to " + std::to_string(gpu_count() - 1));
  return {};
}

int RelayTopology::gpu_of(CUdevice device) const {
  const auto found = std::find(devices_.begin(), devices_.end(), device);
  return found != devices_.end() ? static_cast<int>(found - devices_.begin()) : -1;
}

}  // namespace braid::multipath
