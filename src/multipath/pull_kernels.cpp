#include "multipath/pull_kernels.h"

#include "base/try.h"
#include "cuda/kernels/image.h"
#include "cuda/kernels/pull.h"

namespace braid::multipath {
namespace {

// Thread blocks that a path spends on its GPU: the fewest that reach a path's bandwidth. More make
// more requests wait in the host's memory, and lose (docs/measurements, 2026-11-21-4xH200-awake).
constexpr uint32_t kBulkBlocks = 2;
// Small segments are bound by what one thread can start (docs/measurements, 2026-11-21-2xH200).
constexpr uint32_t kBulkBatchBlocks = 4;
constexpr uint32_t kVectorBlocks = 8;

constexpr int kBulkComputeMajor = 9;

}  // namespace

Result<PullKernels> load_pull_kernels(const cuda::Driver& driver, const Options& options,
                                      CUdevice device, int gpu) {
  const std::string where = " on GPU " + std::to_string(gpu);
  PullKernels kernels;
  Status status = driver.check(driver.cuModuleLoadData(&kernels.module, cuda::pull_kernel_image()),
                               "loading braid's kernels" + where);
  if (!status.ok() && !cuda::pull_kernels_are_built())
    return Status::error("this build of braid has no kernels for GPUs: nvcc was not there",
                         "Build it where nvcc is: make build");
  if (!status.ok()) return status;
  kernels.vector = {nullptr, kVectorBlocks, kVectorBlocks, cuda::kVectorThreads, 0};
  status = driver.check(
      driver.cuModuleGetFunction(&kernels.vector.function, kernels.module, cuda::kVectorKernelName),
      "finding braid_pull" + where);
  if (!status.ok()) {
    driver.cuModuleUnload(kernels.module);
    return status;
  }
  int compute_major = 0;
  driver.cuDeviceGetAttribute(&compute_major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
  CUfunction bulk = nullptr;
  if (compute_major >= kBulkComputeMajor &&
      driver.cuModuleGetFunction(&bulk, kernels.module, cuda::kBulkKernelName) == CUDA_SUCCESS &&
      driver.cuFuncSetAttribute(bulk, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                cuda::kBulkSharedBytes) == CUDA_SUCCESS)
    kernels.bulk = {bulk, kBulkBlocks, kBulkBatchBlocks, cuda::kBulkThreads,
                    cuda::kBulkSharedBytes};
  if (options.blocks_per_path != 0)
    for (KernelConfig* kernel : {&kernels.vector, &kernels.bulk})
      kernel->blocks = kernel->batch_blocks = options.blocks_per_path;
  return kernels;
}

Status warm_up(const cuda::Driver& driver, const PullKernels& kernels, CUstream stream) {
  cuda::PullArgs nothing{};
  void* parameters[] = {&nothing};
  for (const KernelConfig& kernel : {kernels.vector, kernels.bulk}) {
    if (kernel.function == nullptr) continue;
    BRAID_TRY(driver.check(driver.cuLaunchKernel(kernel.function, 1, 1, 1, kernel.threads, 1, 1,
                                                 kernel.shared_bytes, stream, parameters, nullptr),
                           "launching braid's kernels for the first time"));
  }
  return {};
}

}  // namespace braid::multipath
