// Launching braid_pull by hand: one transfer on one GPU, and a stream and the kernel on every GPU.
#pragma once

#include "cuda/kernels/image.h"
#include "cuda/kernels/pull.h"
#include "fixture.h"

namespace braid::emulator_test {

using cuda::PullArgs;
using cuda::TransferCounters;
using cuda::TransferReport;

inline constexpr unsigned kThreads = 512;

// Streams, kernels and occupancies on every GPU, and one transfer on GPU `target`.
class Rig {
 public:
  Rig(const std::string& profile, int gpus, int target_gpu, const std::string& faults = "")
      : server(profile, faults), count(gpus), target(target_gpu) {
    for (int gpu = 0; gpu < count; ++gpu) {
      contexts.push_back(server.use(gpu));
      streams.push_back(server.stream());
      CUmodule module = nullptr;
      EXPECT_EQ(server.cu.cuModuleLoadData(&module, cuda::pull_kernel_image()), CUDA_SUCCESS);
      CUfunction function = nullptr;
      EXPECT_EQ(server.cu.cuModuleGetFunction(&function, module, cuda::kVectorKernelName),
                CUDA_SUCCESS);
      functions.push_back(function);
      occupancies.push_back(server.device_memory(sizeof(cuda::LinkOccupancy)));
      EXPECT_EQ(server.cu.cuMemsetD8(occupancies.back(), 0, sizeof(cuda::LinkOccupancy)),
                CUDA_SUCCESS);
    }
    server.use(target);
    counters = server.device_memory(sizeof(TransferCounters));
    EXPECT_EQ(server.cu.cuMemsetD8(counters, 0, sizeof(TransferCounters)), CUDA_SUCCESS);
    report = reinterpret_cast<TransferReport*>(server.pinned_memory(sizeof(TransferReport)));
    EXPECT_EQ(server.cu.cuCtxSynchronize(), CUDA_SUCCESS);
  }

  void enable_peers() {
    for (int gpu = 0; gpu < count; ++gpu) {
      if (gpu == target) continue;
      server.use(gpu);
      EXPECT_EQ(server.cu.cuCtxEnablePeerAccess(contexts[target], 0), CUDA_SUCCESS);
    }
    server.use(target);
  }

  PullArgs args(uint64_t source, uint64_t destination, uint64_t size, uint32_t slice_bytes,
                uint32_t blocks) const {
    PullArgs made{};
    made.source = source;
    made.destination = destination;
    made.size_bytes = size;
    made.counters = counters;
    made.report = reinterpret_cast<uint64_t>(report);
    made.slice_bytes = slice_bytes;
    made.slice_count = static_cast<uint32_t>(cuda::slice_count_of(destination, size, slice_bytes));
    made.total_blocks = blocks * static_cast<uint32_t>(count);
    made.path_count = static_cast<uint32_t>(count);
    made.generation = ++generations;
    made.relay_slot = cuda::kNoRelaySlot;
    return made;
  }

  CUresult launch(PullArgs args, int gpu, uint32_t path, uint32_t blocks) {
    args.path = path;
    args.occupancy = occupancies[gpu];
    args.rank = path == 0 ? cuda::kBulkDirectRank : cuda::kBulkRelayRank;
    void* params[] = {&args};
    return server.cu.cuLaunchKernel(functions[gpu], blocks, 1, 1, kThreads, 1, 1, 0, streams[gpu],
                                    params, nullptr);
  }

  // The direct path first, then every other GPU.
  void launch_everywhere(const PullArgs& args, uint32_t blocks) {
    EXPECT_EQ(launch(args, target, 0, blocks), CUDA_SUCCESS);
    uint32_t path = 1;
    for (int gpu = 0; gpu < count; ++gpu) {
      if (gpu == target) continue;
      EXPECT_EQ(launch(args, gpu, path++, blocks), CUDA_SUCCESS);
    }
  }

  void synchronize() {
    for (int gpu = 0; gpu < count; ++gpu)
      EXPECT_EQ(server.cu.cuStreamSynchronize(streams[gpu]), CUDA_SUCCESS);
  }

  TransferCounters read_counters() {
    TransferCounters words{};
    EXPECT_EQ(server.cu.cuMemcpyDtoH(&words, counters, sizeof(words)), CUDA_SUCCESS);
    return words;
  }

  Emulated server;
  int count;
  int target;
  std::vector<CUcontext> contexts;
  std::vector<CUstream> streams;
  std::vector<CUfunction> functions;
  std::vector<CUdeviceptr> occupancies;
  CUdeviceptr counters = 0;
  TransferReport* report = nullptr;
  mutable uint32_t generations = 0;
};

}  // namespace braid::emulator_test
