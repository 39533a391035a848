#include "multipath/kernel_mover.h"

#include "cuda/scoped_context.h"

namespace braid::multipath {
namespace {

uint32_t rank_of(const Manners& manners, bool is_relay) {
  const bool waits = is_relay && manners.direct_first;
  if (manners.priority == Priority::kUrgent)
    return waits ? cuda::kUrgentRelayRank : cuda::kUrgentDirectRank;
  return waits ? cuda::kBulkRelayRank : cuda::kBulkDirectRank;
}

cuda::PullArgs make_args(const MoverJob& job, const Ticket& ticket) {
  cuda::PullArgs args{};
  args.source = job.bytes.source;
  args.destination = job.bytes.destination;
  args.size_bytes = job.bytes.size_bytes;
  args.lists = job.bytes.lists;
  args.counters = ticket.counters;
  args.report = reinterpret_cast<uint64_t>(ticket.report);
  args.slice_bytes = job.bytes.slice_bytes;
  args.slice_count = job.bytes.slice_count;
  args.path_count = static_cast<uint32_t>(job.paths.size());
  args.generation = ticket.generation;
  args.direction = static_cast<uint32_t>(job.direction);
  args.is_favoured = job.manners.is_favoured ? 1 : 0;
  return args;
}

// What differs from path to path.
void set_path(cuda::PullArgs& args, const MoverJob& job, size_t path) {
  args.path = static_cast<uint32_t>(path);
  args.board = job.paths[path]->board(job.direction);
  args.pace = job.manners.yields ? job.paths[path]->pace() : 0;
  args.rank = rank_of(job.manners, path != 0);
  args.relay_slot = path != 0 ? job.manners.relay_slot : cuda::kNoRelaySlot;
}

uint32_t blocks_of(const Endpoint& path, const SlicedBytes& bytes) {
  const KernelChoice& kernel = path.kernel_for(bytes.aligned_alike);
  return bytes.lists != 0 ? kernel.batch_blocks : kernel.blocks;
}

CUresult launch(const cuda::Driver& driver, const KernelChoice& kernel, uint32_t blocks,
                CUstream stream, cuda::PullArgs& args) {
  void* parameters[] = {&args};
  return driver.cuLaunchKernel(kernel.function, blocks, 1, 1, kernel.threads, 1, 1,
                               kernel.shared_bytes, stream, parameters, nullptr);
}

CUresult launch_behind(const cuda::Driver& driver, CUevent start, const KernelChoice& kernel,
                       uint32_t blocks, CUstream stream, cuda::PullArgs& args) {
  const CUresult waited = driver.cuStreamWaitEvent(stream, start, 0);
  return waited == CUDA_SUCCESS ? launch(driver, kernel, blocks, stream, args) : waited;
}

// The ticket counts the blocks that leave. Those of a relay that cannot be launched are launched on
// the target, behind its own: they find nothing left, and leave. Else the ticket is never free
// again, nor is anything that waits for it.
CUresult make_up_for(const cuda::Driver& driver, const MoverJob& job, size_t refused,
                     const Lane& lane, cuda::PullArgs args) {
  const Endpoint& target = *job.paths[0];
  set_path(args, job, 0);
  cuda::ScopedContext scope(driver, target.context());
  if (scope.status() != CUDA_SUCCESS) return scope.status();
  return launch_behind(driver, lane.start, target.kernel_for(job.bytes.aligned_alike),
                       blocks_of(*job.paths[refused], job.bytes), lane.streams[job.lane_paths[0]],
                       args);
}

// The gate: the program's stream goes on when the count of landed slices is complete. CUDA does not
// see this dependency, so its own scheduling must never need to: everything that the gate waits for
// has been enqueued before it, and waits only for work that was enqueued earlier still.
void close_gate(const cuda::Driver& driver, const MoverJob& job, const Lane& lane,
                const Ticket& ticket, cuda::ScopedContext& scope) {
  const CUdeviceptr done = ticket.counters + offsetof(cuda::TicketCounters, done);
  if (driver.cuStreamWaitValue32(job.stream, done, ticket.done, job.paths[0]->wait_flags()) ==
      CUDA_SUCCESS)
    return;
  // The bytes are on their way and must hold the stream somehow: wait for the kernels themselves. A
  // relay that fails then holds it for good, since a rescue opens words (rescue.h).
  for (size_t i = 0; i < job.paths.size(); ++i) {
    const int path = job.lane_paths[i];
    scope.enter(job.paths[i]->context());
    driver.cuEventRecord(lane.ends[path], lane.streams[path]);
    scope.leave();
    driver.cuStreamWaitEvent(job.stream, lane.ends[path], 0);
  }
}

}  // namespace

MoverResult enqueue(const cuda::Driver& driver, const MoverJob& job, Lane& lane, Ticket& ticket) {
  MoverResult outcome;
  if (driver.cuEventRecord(lane.start, job.stream) != CUDA_SUCCESS) return outcome;

  ++ticket.generation;
  cuda::PullArgs args = make_args(job, ticket);
  for (const Endpoint* path : job.paths) args.total_blocks += blocks_of(*path, job.bytes);

  cuda::ScopedContext scope(driver);
  for (size_t i = 0; i < job.paths.size(); ++i) {
    Endpoint& path = *job.paths[i];
    set_path(args, job, i);
    CUresult result = scope.enter(path.context());
    if (result == CUDA_SUCCESS)
      result = launch_behind(driver, lane.start, path.kernel_for(job.bytes.aligned_alike),
                             blocks_of(path, job.bytes), lane.streams[job.lane_paths[i]], args);
    if (result == CUDA_SUCCESS) continue;
    if (i == 0) {
      --ticket.generation;
      return outcome;
    }
    outcome.refused.set(i);
    if (make_up_for(driver, job, i, lane, args) != CUDA_SUCCESS) ticket.retired = true;
  }
  scope.leave();
  ticket.done += args.slice_count;
  close_gate(driver, job, lane, ticket, scope);
  outcome.verdict = Verdict::kAccelerated;
  return outcome;
}

CUresult enqueue_direct(const cuda::Driver& driver, const MoverJob& job, Ticket& ticket) {
  const Endpoint& target = *job.paths[0];
  ++ticket.generation;
  cuda::PullArgs args = make_args(job, ticket);
  set_path(args, job, 0);
  args.total_blocks = blocks_of(target, job.bytes);
  const CUresult launched = launch(driver, target.kernel_for(job.bytes.aligned_alike),
                                   args.total_blocks, job.stream, args);
  if (launched == CUDA_SUCCESS)
    ticket.done += args.slice_count;
  else
    --ticket.generation;
  return launched;
}

}  // namespace braid::multipath
