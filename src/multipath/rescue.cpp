#include "multipath/rescue.h"

#include <cstddef>

#include "cuda/scoped_context.h"
#include "multipath/kernel_mover.h"

namespace braid::multipath {
namespace {

// A slice of 1 MB takes less than a millisecond, on a link that eight flows share too. This allows
// for a relay that other processes use in turns, and for slices of the user's size at 1 GB/s.
constexpr uint64_t kStillNs = 500'000'000;
constexpr uint64_t kStillNsPerByte = 1;
// And then, while the driver refuses to carry it.
constexpr uint64_t kGiveUpNs = 2'000'000'000;

}  // namespace

Rescue::~Rescue() {
  if (target_.is_abandoned()) return;
  const cuda::ScopedContext scope(driver_, target_.context());
  if (scope.status() != CUDA_SUCCESS) return;
  if (stream_ != nullptr) driver_.cuStreamDestroy(stream_);
  if (read_ != nullptr) driver_.cuEventDestroy(read_);
}

// That of an idle lane, whose hardware queue nothing holds up. A stream of its own may come to
// share one with a stream that waits for this rescue, where the program has few of them.
CUstream Rescue::pick_stream() {
  for (const Lane& lane : lanes_.lanes())
    if (lane.is_idle()) return lane.streams[0];
  if (stream_ == nullptr)
    driver_.cuStreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, target_.stream_priority());
  return stream_;
}

bool Rescue::is_read() { return is_reading_ && driver_.cuEventQuery(read_) == CUDA_SUCCESS; }

// What a step has asked for, a later one reads.
void Rescue::step(uint64_t now_ns) {
  const cuda::ScopedContext scope(driver_, target_.context());
  if (scope.status() != CUDA_SUCCESS ||
      (read_ == nullptr &&
       driver_.cuEventCreate(&read_, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) ||
      (is_reading_ && !is_read()))
    return;
  const CUstream stream = pick_stream();
  if (stream == nullptr) return;
  std::vector<Ticket>& tickets = tickets_.tickets();
  for (size_t i = 0; is_reading_ && i < tickets.size(); ++i)
    if (tickets[i].is_orphan) judge(tickets[i], watched_[i], now_ns, stream);
  is_reading_ = tickets_.read_counters(stream) == CUDA_SUCCESS &&
                driver_.cuEventRecord(read_, stream) == CUDA_SUCCESS;
}

void Rescue::judge(Ticket& orphan, Watched& watched, uint64_t now_ns, CUstream stream) {
  if (orphan.is_free()) {  // the relay's blocks had left
    orphan.is_orphan = false;
    return;
  }
  const cuda::TicketCounters& seen = tickets_.seen(orphan);
  const bool has_landed = seen.done == orphan.done;
  if (!has_landed) {
    const Progress progress{orphan.generation, seen.next, seen.done, seen.left};
    if (progress != watched.progress) watched = {progress, now_ns};
    const uint64_t needed_ns = kStillNs + kStillNsPerByte * orphan.bytes.slice_bytes;
    const uint64_t still_ns = now_ns - watched.since_ns;
    if (seen.next < orphan.bytes.slice_count || still_ns < needed_ns) return;
    if (!carry(orphan, stream)) {
      if (still_ns < needed_ns + kGiveUpNs || target_.fail(stream) != CUDA_SUCCESS) return;
    }
  }
  orphan.is_orphan = false;
  orphan.retired = true;
  orphan.has_landed = has_landed;
  orphan.unread = has_landed;
}

// With a ticket of its own, whose lists are the orphan's, and whose counts stand for it.
bool Rescue::carry(Ticket& orphan, CUstream stream) {
  Ticket* ticket = tickets_.find_free();
  if (ticket == nullptr) return false;
  Endpoint* const path = &target_;
  MoverJob job;
  job.direction = orphan.direction;
  job.stream = stream;
  job.bytes = orphan.bytes;
  job.paths = {&path, 1};
  if (enqueue_direct(driver_, job, *ticket) != CUDA_SUCCESS) return false;
  lists_.hand_over(orphan, *ticket);
  ticket->begin_use(job.direction, job.bytes, orphan.launched_ns);
  const CUdeviceptr done = orphan.counters + offsetof(cuda::TicketCounters, done);
  return driver_.cuStreamWriteValue32(stream, done, orphan.done, 0) == CUDA_SUCCESS;
}

}  // namespace braid::multipath
