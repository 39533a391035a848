#include "multipath/endpoint.h"

#include <algorithm>

#include "cuda/kernels/image.h"
#include "cuda/kernels/pull.h"
#include "cuda/scoped_context.h"
#include "cuda/sticky_error.h"
#include "cuda/zeroed_memory.h"

namespace braid::multipath {
namespace {

// Thread blocks that a path spends on its GPU, unless the user says otherwise: the fewest that
// reach a path's bandwidth. More make more requests wait in the host's memory, and lose. 4xH200,
// percent of the limit (docs/measurements/2026-11-21-4xH200-awake.md, kernels): to the device 2
// blocks 98, 3 96, 4 94; both ways at once 94 with 12 stages a block, 91 with 8.
constexpr uint32_t kBulkBlocks = 2;
// Small segments are bound by what one thread can start. 2xH200, percent of the limit in segments
// of 64, 16 and 8 KB: 2 blocks 81, 68, 46; 3 blocks 87, 83, 66; 4 blocks 86, 83, 78.
constexpr uint32_t kBulkBatchBlocks = 4;
constexpr uint32_t kVectorBlocks = 8;

constexpr int kBulkComputeMajor = 9;

// The two directions' boards lie apart, so that they never share a memory transaction.
constexpr size_t kBoardStride = 128;
static_assert(sizeof(cuda::LinkBoard) <= kBoardStride);
constexpr size_t kPaceOffset = 2 * kBoardStride;

}  // namespace

Result<std::unique_ptr<Endpoint>> Endpoint::open(const cuda::Driver& driver, const Options& options,
                                                 CUdevice device, int gpu, CUcontext context,
                                                 bool retained) {
  std::unique_ptr<Endpoint> endpoint(new Endpoint(driver, device, gpu, context, retained));
  const Status status = endpoint->load(options);
  if (!status.ok()) return status;
  return endpoint;
}

Status Endpoint::load(const Options& options) {
  cuda::ScopedContext scope(driver_, context_);
  const std::string where = " on GPU " + std::to_string(gpu_);
  Status status = driver_.check(scope.status(), "loading braid's kernels" + where);
  if (status.ok()) status = load_pull_kernels(options);
  if (status.ok()) status = load_gate_kernels();
  if (!status.ok()) return status;

  // The count arrives behind the bytes it counts; where the GPU may reorder the two, it offers a
  // flush.
  int can_flush = 0;
  driver_.cuDeviceGetAttribute(&can_flush, CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES, device_);
  if (can_flush != 0) wait_flags_ |= CU_STREAM_WAIT_VALUE_FLUSH;

  int lowest = 0;
  driver_.cuCtxGetStreamPriorityRange(&lowest, &stream_priority_);
  const auto boards =
      cuda::allocate_zeroed(driver_, kPaceOffset + sizeof(cuda::LinkPace), "the boards" + where);
  if (!boards.ok()) return boards.status();
  boards_ = boards.value();
  return retained_ ? create_relay_streams() : Status();  // only primaries relay
}

Status Endpoint::load_pull_kernels(const Options& options) {
  const std::string where = " on GPU " + std::to_string(gpu_);
  Status status = driver_.check(driver_.cuModuleLoadData(&pull_module_, cuda::pull_kernel_image()),
                                "loading braid's kernels" + where);
  if (!status.ok()) return status;

  vector_ = {nullptr, kVectorBlocks, kVectorBlocks, cuda::kVectorThreads, 0};
  status = driver_.check(
      driver_.cuModuleGetFunction(&vector_.function, pull_module_, cuda::kVectorKernelName),
      "finding braid_pull" + where);
  if (!status.ok()) return status;

  int compute_major = 0;
  driver_.cuDeviceGetAttribute(&compute_major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                               device_);
  CUfunction bulk = nullptr;
  if (compute_major >= kBulkComputeMajor &&
      driver_.cuModuleGetFunction(&bulk, pull_module_, cuda::kBulkKernelName) == CUDA_SUCCESS &&
      driver_.cuFuncSetAttribute(bulk, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                 cuda::kBulkSharedBytes) == CUDA_SUCCESS)
    bulk_ = {bulk, kBulkBlocks, kBulkBatchBlocks, cuda::kBulkThreads, cuda::kBulkSharedBytes};
  if (options.blocks_per_path != 0)
    for (KernelChoice* kernel : {&vector_, &bulk_})
      kernel->blocks = kernel->batch_blocks = options.blocks_per_path;
  return {};
}

Status Endpoint::load_gate_kernels() {
  const std::string where = " on GPU " + std::to_string(gpu_);
  Status status = driver_.check(driver_.cuModuleLoadData(&gate_module_, cuda::gate_kernel_image()),
                                "loading the gate's kernels" + where);
  if (status.ok())
    status = driver_.check(
        driver_.cuModuleGetFunction(&gate_kernel_, gate_module_, cuda::kGateKernelName),
        "finding braid_gate" + where);
  if (status.ok())
    status = driver_.check(
        driver_.cuModuleGetFunction(&fail_kernel_, gate_module_, cuda::kFailKernelName),
        "finding braid_fail" + where);
  return status;
}

Status Endpoint::create_relay_streams() {
  for (CUstream& stream : relay_streams_) {
    const Status status = driver_.check(
        driver_.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, stream_priority_),
        "creating a stream on GPU " + std::to_string(gpu_));
    if (!status.ok()) return status;
  }
  return {};
}

Endpoint::~Endpoint() { close(); }

void Endpoint::close() {
  if (abandoned_) return;
  {
    cuda::ScopedContext scope(driver_, context_);
    for (CUstream stream : relay_streams_)
      if (stream != nullptr) driver_.cuStreamDestroy(stream);
    if (boards_ != 0) driver_.cuMemFree(boards_);
    for (CUmodule module : {pull_module_, gate_module_})
      if (module != nullptr) driver_.cuModuleUnload(module);
  }
  if (retained_) driver_.cuDevicePrimaryCtxRelease(device_);
  abandoned_ = true;
}

CUresult Endpoint::launch_gate(CUfunction kernel, CUstream stream, cuda::GateArgs args) const {
  void* parameters[] = {&args};
  return driver_.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr);
}

CUresult Endpoint::hold(CUstream stream, CUdeviceptr word, uint32_t generation) const {
  return launch_gate(gate_kernel_, stream, {word, generation, 0});
}

CUresult Endpoint::fail(CUstream stream) const { return launch_gate(fail_kernel_, stream, {}); }

bool Endpoint::has_failed() const {
  if (abandoned_) return false;
  const cuda::ScopedContext scope(driver_, context_);
  return std::any_of(relay_streams_.begin(), relay_streams_.end(), [this](CUstream stream) {
    return stream != nullptr && cuda::is_sticky(driver_.cuStreamQuery(stream));
  });
}

CUdeviceptr Endpoint::board(Direction direction) const {
  return boards_ + static_cast<size_t>(direction) * kBoardStride;
}

CUdeviceptr Endpoint::pace() const { return boards_ + kPaceOffset; }

}  // namespace braid::multipath
