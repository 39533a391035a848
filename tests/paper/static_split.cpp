#include "paper/static_split.h"

#include "multipath/kernel_mover.h"
#include "multipath/slice_size.h"
#include "support/server.h"

namespace braid::paper {

using multipath::Verdict;

KernelSplit::KernelSplit(const cuda::Driver& driver, multipath::Endpoint& target,
                         multipath::Endpoint& relay, Shares shares)
    : driver_(driver), target_(target), relay_(relay), shares_(shares) {
  tickets_ = std::move(multipath::TicketPool::open(driver).value());
  lanes_ = std::move(multipath::LaneSet::open(driver, target, {&relay}).value());
  MUST(driver_, cuStreamCreate(&side_, CU_STREAM_NON_BLOCKING));
  MUST(driver_, cuEventCreate(&fork_, CU_EVENT_DISABLE_TIMING));
  MUST(driver_, cuEventCreate(&join_, CU_EVENT_DISABLE_TIMING));
}

KernelSplit::~KernelSplit() {
  driver_.cuStreamDestroy(side_);
  driver_.cuEventDestroy(fork_);
  driver_.cuEventDestroy(join_);
}

Verdict KernelSplit::enqueue_on(multipath::Endpoint& path, int lane_path, uint64_t source,
                                uint64_t destination, uint64_t size_bytes, CUstream stream) {
  multipath::Endpoint* const paths[] = {&path};
  multipath::MoverJob job;
  job.stream = stream;
  job.bytes.source = source;
  job.bytes.destination = destination;
  job.bytes.size_bytes = size_bytes;
  job.bytes.slice_bytes = multipath::kDefaultSliceBytes;
  job.bytes.slice_count = static_cast<uint32_t>(
      cuda::slice_count_of(destination, size_bytes, multipath::kDefaultSliceBytes));
  job.paths = paths;
  job.lane_paths = {&lane_path, 1};
  return multipath::enqueue(driver_, job, lanes_->lanes()[static_cast<size_t>(lane_path)],
                            *tickets_->find_free())
      .verdict;
}

Verdict KernelSplit::submit(void* host, CUdeviceptr device, uint64_t size_bytes, CUstream stream) {
  const auto source = reinterpret_cast<uint64_t>(host);
  const uint64_t direct_bytes =
      size_bytes / (shares_.direct + shares_.relayed) * shares_.direct & ~uint64_t{15};
  MUST(driver_, cuEventRecord(fork_, stream));
  MUST(driver_, cuStreamWaitEvent(side_, fork_, 0));
  Verdict verdict = enqueue_on(target_, 0, source, device, direct_bytes, stream);
  if (verdict == Verdict::kAccelerated)
    verdict = enqueue_on(relay_, 1, source + direct_bytes, device + direct_bytes,
                         size_bytes - direct_bytes, side_);
  MUST(driver_, cuEventRecord(join_, side_));
  MUST(driver_, cuStreamWaitEvent(stream, join_, 0));
  return verdict;
}

Verdict CopyEngineSplit::submit(void* host, CUdeviceptr device, uint64_t size_bytes,
                                CUstream stream) {
  const multipath::Segment whole{host, device, size_bytes};
  multipath::Endpoint* const relays[] = {&relay_};
  return mover_.submit(
      {multipath::Direction::kHostToDevice, {&whole, 1}, stream, multipath::Priority::kBulk},
      target_, relays);
}

}  // namespace braid::paper
