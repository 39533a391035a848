#include "multipath/kernel_mover.h"

#include "cuda/scoped_context.h"
#include "multipath/access.h"

namespace braid::multipath {
namespace {

uint32_t rank_of(Priority priority, bool is_relay) {
  if (priority == Priority::kUrgent)
    return is_relay ? cuda::kUrgentRelayRank : cuda::kUrgentDirectRank;
  return is_relay ? cuda::kBulkRelayRank : cuda::kBulkDirectRank;
}

uint32_t blocks_of(const PullKernels& kernels, const SlicedBytes& bytes) {
  const KernelConfig& kernel = kernels.choose(bytes.aligned_alike);
  return bytes.lists != 0 ? kernel.batch_blocks : kernel.blocks;
}

cuda::PullArgs make_args(const KernelJob& job, const TransferState& state) {
  cuda::PullArgs args{};
  args.source = job.bytes.source;
  args.destination = job.bytes.destination;
  args.size_bytes = job.bytes.size_bytes;
  args.lists = job.bytes.lists;
  args.counters = state.counters;
  args.report = reinterpret_cast<uint64_t>(state.report);
  args.slice_bytes = job.bytes.slice_bytes;
  args.slice_count = job.bytes.slice_count;
  args.path_count = static_cast<uint32_t>(job.relays.size()) + 1;
  args.generation = state.generation;
  args.direction = static_cast<uint32_t>(job.direction);
  args.is_favoured = job.yield_policy.is_favoured ? 1 : 0;
  args.total_blocks = blocks_of(job.direct.kernels, job.bytes);
  for (const RelayPath& path : job.relays)
    args.total_blocks += blocks_of(path.relay->kernels(), job.bytes);
  return args;
}

// What differs from path to path. `link`: of the path's GPU; `relay` null: the direct path.
void set_path(cuda::PullArgs& args, const KernelJob& job, uint32_t path, const LinkState& link,
              const Relay* relay) {
  args.path = path;
  args.occupancy = link.occupancy(job.direction);
  args.pace = job.yield_policy.yields ? link.pace() : 0;
  args.rank = rank_of(job.yield_policy.priority, relay != nullptr);
  args.relay_slot = relay != nullptr ? job.yield_policy.relay_slot : cuda::kNoRelaySlot;
  args.shared = relay != nullptr ? relay->shared_address() : 0;
}

CUresult launch(const cuda::Driver& driver, const KernelConfig& kernel, uint32_t blocks,
                CUstream stream, cuda::PullArgs& args) {
  void* parameters[] = {&args};
  return driver.cuLaunchKernel(kernel.function, blocks, 1, 1, kernel.threads, 1, 1,
                               kernel.shared_bytes, stream, parameters, nullptr);
}

// In the program's stream, but ahead of kernels that fill the GPU: as a copy would be.
CUresult launch_direct(const cuda::Driver& driver, const KernelJob& job, uint32_t blocks,
                       cuda::PullArgs& args) {
  const KernelConfig& kernel = job.direct.kernels.choose(job.bytes.aligned_alike);
  CUlaunchAttribute priority{};
  priority.id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
  priority.value.priority = job.direct.priority;
  CUlaunchConfig config{};
  config.gridDimX = blocks;
  config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = kernel.threads;
  config.blockDimY = config.blockDimZ = 1;
  config.sharedMemBytes = kernel.shared_bytes;
  config.hStream = job.stream;
  config.attrs = &priority;
  config.numAttrs = 1;
  void* parameters[] = {&args};
  return driver.cuLaunchKernelEx(&config, kernel.function, parameters, nullptr);
}

// The relay's kernel, behind the point that the program's stream has said.
CUresult launch_relay(const cuda::Driver& driver, const KernelJob& job, const RelayPath& path,
                      const TransferState& state, cuda::PullArgs& args) {
  const Channel& channel = *path.channels[0];
  const CUresult waited = wait_begun(driver, state, channel);
  if (waited != CUDA_SUCCESS) return waited;
  const PullKernels& kernels = path.relay->kernels();
  return launch(driver, kernels.choose(job.bytes.aligned_alike), blocks_of(kernels, job.bytes),
                channel.stream, args);
}

// The state counts the blocks that leave. Those of a relay that cannot be launched are launched
// on the target, behind its own: they find nothing left, and leave. Else the state is never free
// again, nor is anything that waits for it.
CUresult launch_substitute(const cuda::Driver& driver, const KernelJob& job,
                           const RelayPath& refused, cuda::PullArgs args) {
  set_path(args, job, 0, job.direct.link, nullptr);
  cuda::ScopedContext scope(driver, job.context);
  if (scope.status() != CUDA_SUCCESS) return scope.status();
  return launch_direct(driver, job, blocks_of(refused.relay->kernels(), job.bytes), args);
}

// The gate: the program's stream goes on when the count of landed slices is complete, however late
// a relay's kernel leaves. If the driver does not have it, the stream waits for the kernels.
CUresult close_gate(const cuda::Driver& driver, const KernelJob& job, const TransferState& state,
                    std::span<const ChannelUse> relays) {
  const CUdeviceptr done = state.counters + offsetof(cuda::TransferCounters, done);
  const CUresult waits =
      driver.cuStreamWaitValue32(job.stream, done, state.done, job.direct.wait_flags);
  return waits == CUDA_SUCCESS ? waits : wait_by_events(driver, relays, job.stream);
}

}  // namespace

Enqueued enqueue_kernels(const cuda::Driver& driver, const KernelJob& job, TransferState& state) {
  Enqueued result;
  if (signal_begun(driver, state, job.stream) != CUDA_SUCCESS) return result;
  cuda::ScopedContext scope(driver, job.context);
  cuda::PullArgs args = make_args(job, state);
  set_path(args, job, 0, job.direct.link, nullptr);
  if (scope.status() != CUDA_SUCCESS ||
      launch_direct(driver, job, blocks_of(job.direct.kernels, job.bytes), args) != CUDA_SUCCESS)
    return result;
  state.done += args.slice_count;
  std::array<ChannelUse, cuda::kMaxPaths> launched{};
  size_t launched_count = 0;
  for (size_t i = 0; i < job.relays.size(); ++i) {
    const RelayPath& path = job.relays[i];
    set_path(args, job, static_cast<uint32_t>(i) + 1, path.relay->link(), path.relay);
    CUresult relayed = scope.enter(path.relay->context());
    if (relayed == CUDA_SUCCESS) relayed = launch_relay(driver, job, path, state, args);
    if (relayed != CUDA_SUCCESS) {
      result.refused[i] = relayed;
      if (launch_substitute(driver, job, path, args) != CUDA_SUCCESS) state.retired = true;
      continue;
    }
    launched[launched_count++] = {path.channels[0], 0};
    result.refused[i] = signal_landed(driver, *path.channels[0]);
    if (result.refused[i] != CUDA_SUCCESS) {
      state.retired = true;
      continue;
    }
    state.add(*path.channels[0]);
    result.via |= gpu_bit(path.relay->gpu());
  }
  scope.leave();
  result.error = close_gate(driver, job, state, std::span(launched).first(launched_count));
  result.verdict = result.error == CUDA_SUCCESS ? Verdict::kAccelerated : Verdict::kFailed;
  return result;
}

}  // namespace braid::multipath
