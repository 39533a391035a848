#include "fabric/gpu/memory.h"

#include <string>

#include "fabric/gpu/process_driver.h"
#include "multipath/pointer_facts.h"

namespace braid::fabric::gpu {
namespace {

/// Mapped memory and pools belong to no context: the caller's context is used, if it is of that
/// GPU.
CUcontext current_context_on(const cuda::Driver& driver, int gpu) {
  CUcontext context = nullptr;
  CUdevice device = 0, wanted = 0;
  if (driver.cuCtxGetCurrent(&context) != CUDA_SUCCESS || context == nullptr) return nullptr;
  const bool is_there = driver.cuCtxGetDevice(&device) == CUDA_SUCCESS &&
                        driver.cuDeviceGet(&wanted, gpu) == CUDA_SUCCESS && device == wanted;
  return is_there ? context : nullptr;
}

}  // namespace

Result<std::shared_ptr<Lane>> lane_of_memory(MutableBytes memory) {
  const cuda::Driver* driver = process_driver();
  if (driver == nullptr) return std::shared_ptr<Lane>();
  const auto address = reinterpret_cast<CUdeviceptr>(memory.data());
  const multipath::DeviceFacts facts = multipath::pointer_facts(*driver, address).device;
  if (!facts.is_device) return std::shared_ptr<Lane>();
  // A range may span several mappings.
  const bool is_one_piece = facts.kind != multipath::DeviceFacts::Kind::kMapped;
  if (is_one_piece && facts.extent.size_bytes > 0 && !facts.extent.holds(address, memory.size()))
    return Status::error("the memory reaches beyond its allocation of " +
                         std::to_string(facts.extent.size_bytes) + " bytes on GPU " +
                         std::to_string(facts.gpu));
  CUcontext context = facts.context;
  if (context == nullptr) context = current_context_on(*driver, facts.gpu);
  std::shared_ptr<Lane> lane = lane_of(*driver, context, facts.gpu);
  if (lane == nullptr)
    return Status::error(
        "no thread could be started for the copies of GPU " + std::to_string(facts.gpu),
        "Raise the limit of threads of this user or container");
  return lane;
}

}  // namespace braid::fabric::gpu
