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

const KernelConfig& direct_kernel(const KernelJob& job) {
  return job.direct.kernels.choose(job.direction, true, job.bytes.aligned_alike);
}

const KernelConfig& relay_kernel(const KernelJob& job, const Relay& relay) {
  return relay.kernels().choose(job.direction, false, job.bytes.aligned_alike);
}

uint32_t blocks_of(const KernelJob& job, const KernelConfig& kernel) {
  return kernel.blocks_for(job.direction, job.bytes);
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
  args.relays_stay = job.own_link != nullptr ? 1 : 0;
  args.total_blocks = job.own_link != nullptr ? 0 : blocks_of(job, direct_kernel(job));
  for (const RelayPath& path : job.relays)
    args.total_blocks += blocks_of(job, relay_kernel(job, *path.relay));
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
  const KernelConfig& kernel = direct_kernel(job);
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
  Channel& channel = *path.channels[0];
  const CUresult waited = wait_begun(driver, state, channel);
  if (waited != CUDA_SUCCESS) return waited;
  const KernelConfig& kernel = relay_kernel(job, *path.relay);
  ++channel.ops;
  return launch(driver, kernel, blocks_of(job, kernel), channel.stream, args);
}

// The gate: the program's stream goes on when the count of landed slices is complete, however late
// a relay's kernel leaves. If the driver does not have it, the stream waits for the kernels.
CUresult close_gate(const cuda::Driver& driver, const KernelJob& job, TransferState& state,
                    std::span<const ChannelUse> relays) {
  const CUresult waits = wait_done(driver, state, job.stream, job.direct.wait_flags);
  return waits == CUDA_SUCCESS ? waits : wait_by_events(driver, relays, job.stream);
}

// One transfer while it is being enqueued.
class Enqueuing {
 public:
  Enqueuing(const cuda::Driver& driver, const KernelJob& job, TransferState& state)
      : driver_(driver), job_(job), state_(state), scope_(driver, job.context) {}

  Enqueued enqueue();

 private:
  CUresult launch_target(uint32_t blocks);
  void launch_relays();
  CUresult launch_missing();
  void set_relay(size_t relay) {
    set_path(args_, job_, static_cast<uint32_t>(relay) + 1, job_.relays[relay].relay->link(),
             job_.relays[relay].relay);
  }

  const cuda::Driver& driver_;
  const KernelJob& job_;
  TransferState& state_;
  cuda::ScopedContext scope_;
  cuda::PullArgs args_ = make_args(job_, state_);
  Enqueued enqueued_;
  std::array<ChannelUse, cuda::kMaxPaths> launched_{};  // the channels of relays that have a kernel
  size_t launched_count_ = 0;
  size_t stand_in_ = 0;          // the last of these relays
  uint32_t missing_blocks_ = 0;  // of relays that have none
};

CUresult Enqueuing::launch_target(uint32_t blocks) {
  set_path(args_, job_, 0, job_.direct.link, nullptr);
  const CUresult entered = scope_.enter(job_.context);
  return entered == CUDA_SUCCESS ? launch_direct(driver_, job_, blocks, args_) : entered;
}

void Enqueuing::launch_relays() {
  for (size_t i = 0; i < job_.relays.size(); ++i) {
    const RelayPath& path = job_.relays[i];
    set_relay(i);
    CUresult& refused = enqueued_.refused[i];
    refused = scope_.enter(path.relay->context());
    if (refused == CUDA_SUCCESS) refused = launch_relay(driver_, job_, path, state_, args_);
    if (refused != CUDA_SUCCESS) {
      missing_blocks_ += blocks_of(job_, relay_kernel(job_, *path.relay));
      continue;
    }
    launched_[launched_count_++] = {path.channels[0], 0};
    stand_in_ = i;
    refused = signal_landed(driver_, *path.channels[0]);
    if (refused != CUDA_SUCCESS) {
      state_.retired = true;
      continue;
    }
    state_.add(*path.channels[0]);
    enqueued_.via |= gpu_bit(path.relay->gpu());
  }
}

// The state counts the blocks that leave. Those of relays that cannot be launched are launched
// behind others, where they find nothing left, and leave. Else the state is never free again, nor
// is anything that waits for it.
CUresult Enqueuing::launch_missing() {
  if (missing_blocks_ == 0) return CUDA_SUCCESS;
  if (job_.own_link == nullptr) return launch_target(missing_blocks_);
  const RelayPath& path = job_.relays[stand_in_];
  set_relay(stand_in_);
  ++path.channels[0]->ops;
  const CUresult entered = scope_.enter(path.relay->context());
  return entered == CUDA_SUCCESS ? launch(driver_, relay_kernel(job_, *path.relay), missing_blocks_,
                                          path.channels[0]->stream, args_)
                                 : entered;
}

// Relays are launched before the driver's copies, since a batch of the driver takes the caller much
// longer than they do. If no relay has taken its kernel, nothing has been asked to move.
Enqueued Enqueuing::enqueue() {
  if (scope_.status() != CUDA_SUCCESS) return enqueued_;
  const bool has_kernel = job_.own_link == nullptr;
  if (has_kernel && launch_target(blocks_of(job_, direct_kernel(job_))) != CUDA_SUCCESS)
    return enqueued_;
  launch_relays();
  if (!has_kernel && launched_count_ == 0) return enqueued_;
  state_.done += args_.slice_count;
  if (launch_missing() != CUDA_SUCCESS) state_.retired = true;
  scope_.leave();
  const CUresult copied = has_kernel ? CUDA_SUCCESS : job_.own_link->copy(job_.own_bytes);
  enqueued_.error = close_gate(driver_, job_, state_, std::span(launched_).first(launched_count_));
  if (enqueued_.error == CUDA_SUCCESS) enqueued_.error = copied;
  enqueued_.verdict = enqueued_.error == CUDA_SUCCESS ? Verdict::kAccelerated : Verdict::kFailed;
  return enqueued_;
}

}  // namespace

Enqueued enqueue_kernels(const cuda::Driver& driver, const KernelJob& job, TransferState& state) {
  if (signal_begun(driver, state, job.stream) != CUDA_SUCCESS) return {};
  return Enqueuing(driver, job, state).enqueue();
}

}  // namespace braid::multipath
