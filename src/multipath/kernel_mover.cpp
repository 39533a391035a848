#include "multipath/kernel_mover.h"

#include "cuda/scoped_context.h"

namespace braid::multipath {
namespace {

cuda::PullArgs make_args(const MoverJob& job, const Ticket& ticket) {
  const Transfer& transfer = job.transfer;
  const auto host = reinterpret_cast<uint64_t>(transfer.host);
  const bool to_device = transfer.direction == Direction::kHostToDevice;
  cuda::PullArgs args{};
  args.source = to_device ? host : transfer.device;
  args.destination = to_device ? transfer.device : host;
  args.size_bytes = transfer.size_bytes;
  args.counters = ticket.counters;
  args.report = reinterpret_cast<uint64_t>(ticket.report);
  args.slice_bytes = job.slice_bytes;
  args.slice_count = static_cast<uint32_t>(
      cuda::slice_count_of(args.destination, args.size_bytes, args.slice_bytes));
  args.path_count = static_cast<uint32_t>(job.paths.size());
  args.generation = ticket.generation;
  args.yields = job.yields ? 1 : 0;
  return args;
}

CUresult launch(const cuda::Driver& driver, const KernelChoice& kernel, CUevent start,
                CUstream stream, cuda::PullArgs& args) {
  const CUresult waited = driver.cuStreamWaitEvent(stream, start, 0);
  if (waited != CUDA_SUCCESS) return waited;
  void* parameters[] = {&args};
  return driver.cuLaunchKernel(kernel.function, kernel.blocks, 1, 1, kernel.threads, 1, 1,
                               kernel.shared_bytes, stream, parameters, nullptr);
}

// The gate: the program's stream goes on when the count of landed slices is complete. CUDA does not
// see this dependency, so its own scheduling must never need to: everything that the gate waits for
// has been enqueued before it, and waits only for work that was enqueued earlier still.
void close_gate(const cuda::Driver& driver, const MoverJob& job, const Lane& lane,
                const Ticket& ticket, cuda::ScopedContext& scope) {
  const CUdeviceptr done = ticket.counters + offsetof(cuda::TicketCounters, done);
  if (driver.cuStreamWaitValue32(job.transfer.stream, done, ticket.done,
                                 job.paths[0]->wait_flags()) == CUDA_SUCCESS)
    return;
  // The bytes are on their way and must hold the stream somehow: wait for the kernels themselves.
  for (size_t i = 0; i < job.paths.size(); ++i) {
    const int path = job.lane_paths[i];
    scope.enter(job.paths[i]->context());
    driver.cuEventRecord(lane.ends[path], lane.streams[path]);
    scope.enter(scope.before());
    driver.cuStreamWaitEvent(job.transfer.stream, lane.ends[path], 0);
  }
}

}  // namespace

MoverResult enqueue(const cuda::Driver& driver, const MoverJob& job, Lane& lane, Ticket& ticket) {
  MoverResult outcome;
  if (driver.cuEventRecord(lane.start, job.transfer.stream) != CUDA_SUCCESS) return outcome;

  ++ticket.generation;
  cuda::PullArgs args = make_args(job, ticket);
  const bool aligned_alike = ((args.source ^ args.destination) & 15) == 0;
  for (const Endpoint* path : job.paths)
    args.total_blocks += path->kernel_for(aligned_alike).blocks;

  cuda::ScopedContext scope(driver);
  for (size_t i = 0; i < job.paths.size(); ++i) {
    Endpoint& path = *job.paths[i];
    args.path = static_cast<uint32_t>(i);
    args.busy = path.busy_word(job.transfer.direction);
    CUresult result = scope.enter(path.context());
    if (result == CUDA_SUCCESS)
      result = launch(driver, path.kernel_for(aligned_alike), lane.start,
                      lane.streams[job.lane_paths[i]], args);
    if (result == CUDA_SUCCESS) continue;
    if (i == 0) {
      --ticket.generation;
      return outcome;
    }
    ticket.retired = true;  // its kernels wait for a block that never comes
    outcome.refused_path = static_cast<int>(i);
  }
  scope.enter(scope.before());
  ticket.done += args.slice_count;
  close_gate(driver, job, lane, ticket, scope);
  outcome.verdict = Verdict::kAccelerated;
  return outcome;
}

}  // namespace braid::multipath
