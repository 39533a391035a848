// Kernel launches.
#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "emulator/api/context.h"
#include "emulator/api/entry.h"
#include "emulator/constants.h"
#include "emulator/ops/ops.h"

namespace braid::emulator {
namespace {

struct Shape {
  unsigned grid[3];
  unsigned block[3];
};

constexpr unsigned kMostGridYZ = 65535;
constexpr unsigned kMostBlockZ = 64;
constexpr unsigned kMostThreads = 1024;

CUresult check_shape(const Shape& shape) {
  for (int i = 0; i < 3; ++i)
    if (shape.grid[i] == 0 || shape.block[i] == 0) return CUDA_ERROR_INVALID_VALUE;
  if (shape.grid[0] > static_cast<unsigned>(std::numeric_limits<int>::max()) ||
      shape.grid[1] > kMostGridYZ || shape.grid[2] > kMostGridYZ)
    return CUDA_ERROR_INVALID_VALUE;
  if (shape.block[0] > kMostThreads || shape.block[1] > kMostThreads ||
      shape.block[2] > kMostBlockZ ||
      uint64_t{shape.block[0]} * shape.block[1] * shape.block[2] > kMostThreads)
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

// Arguments come as an array of pointers, or as one buffer. Twins have one argument, by value.
CUresult copy_args(const cuda::Twin& twin, void** params, void** extra,
                   std::vector<std::byte>& args) {
  const void* source = params != nullptr ? params[0] : nullptr;
  size_t size = twin.args_bytes;
  if (params != nullptr && extra != nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (void** item = extra; item != nullptr && item[0] != CU_LAUNCH_PARAM_END; item += 2) {
    if (item[0] == CU_LAUNCH_PARAM_BUFFER_POINTER)
      source = item[1];
    else if (item[0] == CU_LAUNCH_PARAM_BUFFER_SIZE && item[1] != nullptr)
      size = *static_cast<size_t*>(item[1]);
    else
      return CUDA_ERROR_INVALID_VALUE;
  }
  if (source == nullptr || size != twin.args_bytes) return CUDA_ERROR_INVALID_VALUE;
  args.resize(size);
  std::memcpy(args.data(), source, size);
  return CUDA_SUCCESS;
}

CUresult launch_shape(Call& call, CUfunction handle, const Shape& shape, CUstream stream_handle,
                      void** params, void** extra, std::optional<int> priority = {}) {
  BRAID_LET(function, find_object(call.world.functions, handle));
  BRAID_TRY(check_shape(shape));
  BRAID_LET(stream, find_stream(call, stream_handle));
  const ContextPtr context = stream->context.lock();
  if (function->context.lock() != context) return CUDA_ERROR_INVALID_HANDLE;
  BRAID_TRY(set_local_memory_aside(call, context, call.world.faults.kernels_take_local_bytes()));
  Launch launch;
  launch.twin = function->twin;
  launch.priority = priority;
  BRAID_TRY(copy_args(*function->twin, params, extra, launch.args));
  const uint64_t blocks = uint64_t{shape.grid[0]} * shape.grid[1] * shape.grid[2];
  // Twins step one by one; a grid of millions is a mistake here, not a workload.
  constexpr uint64_t kMostBlocks = 1 << 20;
  if (blocks > kMostBlocks) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  launch.blocks = static_cast<uint32_t>(blocks);
  launch.threads_per_block = static_cast<int>(shape.block[0] * shape.block[1] * shape.block[2]);
  BRAID_TRY(check_capture(stream));
  enqueue_kernel(call.world, stream, std::move(launch));
  return CUDA_SUCCESS;
}

CUresult launch(Call& call, CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                unsigned by, unsigned bz, unsigned, CUstream stream, void** params, void** extra) {
  return launch_shape(call, function, {{gx, gy, gz}, {bx, by, bz}}, stream, params, extra);
}

// What an attribute asks for beyond the priority: nothing, or something that twins cannot give.
// Hints (where data stays cached, how blocks are spread) are nothing here.
CUresult check_attribute(const CUlaunchAttribute& attribute) {
  const CUlaunchAttributeValue& value = attribute.value;
  bool plain = true;
  switch (static_cast<int>(attribute.id)) {
    case CU_LAUNCH_ATTRIBUTE_IGNORE:
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:  // allows to overlap, only
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
    case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING: break;
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE: plain = value.cooperative == 0; break;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
      plain = value.clusterDim.x == 1 && value.clusterDim.y == 1 && value.clusterDim.z == 1;
      break;
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
    case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE: plain = false; break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  return plain ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult read_attributes(const CUlaunchConfig& config, std::optional<int>& priority) {
  if (config.numAttrs > 0 && config.attrs == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    BRAID_TRY(check_attribute(config.attrs[i]));
    if (config.attrs[i].id == CU_LAUNCH_ATTRIBUTE_PRIORITY)
      priority = std::clamp(config.attrs[i].value.priority, kGreatestPriority, kLeastPriority);
  }
  return CUDA_SUCCESS;
}

CUresult launch_config(Call& call, const CUlaunchConfig* config, CUfunction function, void** params,
                       void** extra) {
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::optional<int> priority;
  BRAID_TRY(read_attributes(*config, priority));
  return launch_shape(call, function,
                      {{config->gridDimX, config->gridDimY, config->gridDimZ},
                       {config->blockDimX, config->blockDimY, config->blockDimZ}},
                      config->hStream, params, extra, priority);
}

// Twins are small: as many blocks fit as threads do.
CUresult max_active_blocks(Call& call, int* blocks, CUfunction function, int block_size, size_t) {
  if (blocks == nullptr || block_size <= 0) return CUDA_ERROR_INVALID_VALUE;
  if (call.world.functions.find(function) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *blocks =
      block_size > static_cast<int>(kMostThreads) ? 0 : kThreadsPerMultiprocessor / block_size;
  return CUDA_SUCCESS;
}

}  // namespace

BRAID_ENTRY_STREAM(cuLaunchKernel, _ptsz, Cost::kEnqueue, 11, launch)
BRAID_ENTRY_STREAM(cuLaunchKernelEx, _ptsz, Cost::kEnqueue, 4, launch_config)
BRAID_ENTRY(cuOccupancyMaxActiveBlocksPerMultiprocessor, 4, max_active_blocks)

}  // namespace braid::emulator
