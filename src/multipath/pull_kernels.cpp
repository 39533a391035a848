#include "multipath/pull_kernels.h"

#include "base/try.h"
#include "cuda/kernels/image.h"
#include "cuda/kernels/pull.h"

namespace braid::multipath {
namespace {

// Thread blocks that a path spends on its GPU: the fewest that reach a path's bandwidth. More make
// more requests wait in the host's memory, and lose (docs/measurements, 2026-11-21-4xH200-awake).
constexpr uint32_t kBulkBlocks = 2;
constexpr uint32_t kToHostBlocks = 3;
// Small segments are bound by what one thread can start (docs/measurements, 2026-11-21-2xH200).
constexpr uint32_t kBulkBatchBlocks = 4;
constexpr uint32_t kVectorBlocks = 8;

constexpr int kBulkComputeMajor = 9;

// A kernel of bulk copies. Without a function if the GPU has none.
KernelConfig load_bulk(const cuda::Driver& driver, CUmodule module, const char* name,
                       const cuda::BulkRing& ring, uint32_t blocks) {
  CUfunction function = nullptr;
  if (driver.cuModuleGetFunction(&function, module, name) != CUDA_SUCCESS ||
      driver.cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                static_cast<int>(ring.size_bytes())) != CUDA_SUCCESS)
    return {};
  return {.function = function,
          .blocks = blocks,
          .batch_blocks = kBulkBatchBlocks,
          .threads = cuda::kBulkThreads,
          .shared_bytes = ring.size_bytes(),
          .chunk_bytes = ring.stage_bytes};
}

}  // namespace

// Blocks that write to the host crowd out those that read from it. So only segments that are
// smaller than a chunk, of which a block starts too few, get more of them.
uint32_t KernelConfig::blocks_for(Direction direction, const SlicedBytes& bytes) const {
  if (bytes.lists == 0) return blocks;
  const bool has_whole_chunks = bytes.size_bytes >= uint64_t{bytes.segment_count} * chunk_bytes;
  return direction == Direction::kDeviceToHost && has_whole_chunks ? blocks : batch_blocks;
}

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
  kernels.vector = {nullptr, kVectorBlocks, kVectorBlocks, cuda::kVectorThreads, 0, 0};
  status = driver.check(
      driver.cuModuleGetFunction(&kernels.vector.function, kernels.module, cuda::kVectorKernelName),
      "finding braid_pull" + where);
  if (!status.ok()) {
    driver.cuModuleUnload(kernels.module);
    return status;
  }
  int compute_major = 0;
  driver.cuDeviceGetAttribute(&compute_major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
  if (compute_major >= kBulkComputeMajor) {
    kernels.bulk =
        load_bulk(driver, kernels.module, cuda::kBulkKernelName, cuda::kBulkRing, kBulkBlocks);
    kernels.to_host = load_bulk(driver, kernels.module, cuda::kToHostKernelName, cuda::kToHostRing,
                                kToHostBlocks);
  }
  if (options.blocks_per_path != 0)
    for (KernelConfig* kernel : {&kernels.vector, &kernels.bulk, &kernels.to_host})
      kernel->blocks = kernel->batch_blocks = options.blocks_per_path;
  return kernels;
}

Status warm_up(const cuda::Driver& driver, const PullKernels& kernels, CUstream stream) {
  cuda::PullArgs nothing{};
  void* parameters[] = {&nothing};
  for (const KernelConfig& kernel : {kernels.vector, kernels.bulk, kernels.to_host}) {
    if (kernel.function == nullptr) continue;
    BRAID_TRY(driver.check(driver.cuLaunchKernel(kernel.function, 1, 1, 1, kernel.threads, 1, 1,
                                                 kernel.shared_bytes, stream, parameters, nullptr),
                           "launching braid's kernels for the first time"));
  }
  return {};
}

}  // namespace braid::multipath
