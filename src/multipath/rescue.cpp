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
// While the driver refuses to carry it, and while a reading does not come: its stream is held up.
constexpr uint64_t kGiveUpNs = 2'000'000'000;

}  // namespace

Rescue::~Rescue() {
  if (target_.is_abandoned()) return;
  const cuda::ScopedContext scope(driver_, target_.context());
  if (scope.status() != CUDA_SUCCESS) return;
  if (stream_ != nullptr) driver_.cuStreamDestroy(stream_);
  if (reading_.arrived != nullptr) driver_.cuEventDestroy(reading_.arrived);
}

// What a step has asked for, a later one reads.
void Rescue::step(uint64_t now_ns) {
  const cuda::ScopedContext scope(driver_, target_.context());
  if (scope.status() != CUDA_SUCCESS) return;
  const bool has_read = has_arrived(now_ns);
  if (reading_.is_asked_for && !has_read) return;
  const CUstream stream = pick_stream();
  if (stream == nullptr) return;
  for (size_t i = 0; has_read && i < kTickets; ++i)
    if (Ticket& ticket = tickets_.tickets()[i]; ticket.is_orphan)
      judge(ticket, watched_[i], now_ns, stream);
  ask(stream, now_ns);
}

// One that does not arrive is asked for again, in another stream.
bool Rescue::has_arrived(uint64_t now_ns) {
  if (!reading_.is_asked_for) return false;
  if (driver_.cuEventQuery(reading_.arrived) == CUDA_SUCCESS) return true;
  if (now_ns - reading_.asked_ns < kGiveUpNs) return false;
  reading_.is_asked_for = false;
  ++turn_;
  return false;
}

void Rescue::ask(CUstream stream, uint64_t now_ns) {
  CUevent& arrived = reading_.arrived;
  if (arrived == nullptr &&
      driver_.cuEventCreate(&arrived, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
    arrived = nullptr;
  reading_.asked_ns = now_ns;
  reading_.is_asked_for = arrived != nullptr && tickets_.read_counters(stream) == CUDA_SUCCESS &&
                          driver_.cuEventRecord(arrived, stream) == CUDA_SUCCESS;
}

// Those of idle lanes first, whose hardware queues no transfer holds up. One of its own may come to
// share a queue with a stream that waits for this rescue, where the program has few of them.
CUstream Rescue::pick_stream() {
  std::array<CUstream, kLanes + 1> streams{};
  size_t count = 0;
  for (const Lane& lane : lanes_.lanes())
    if (lane.is_idle()) streams[count++] = lane.streams[0];
  if (count == 0 || turn_ != 0) {
    if (stream_ == nullptr)
      driver_.cuStreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING,
                                         target_.stream_priority());
    if (stream_ != nullptr) streams[count++] = stream_;
  }
  return count == 0 ? nullptr : streams[turn_ % count];
}

// Between the arrival of one reading and the request for the last one, nothing has moved.
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
    if (seen.next < orphan.bytes.slice_count || reading_.asked_ns < watched.since_ns + needed_ns ||
        !end(orphan, now_ns, stream))
      return;
  }
  orphan.is_orphan = false;
  orphan.retired = true;
  orphan.has_landed = has_landed;
  orphan.unread = has_landed;
}

// True when the transfer's end is on its way, be it by an error.
bool Rescue::end(Ticket& orphan, uint64_t now_ns, CUstream stream) {
  const CUresult carried = carry(orphan, stream);
  if (carried == CUDA_ERROR_NOT_READY) return false;
  if (carried != CUDA_SUCCESS) {
    if (refused_since_ns_ == 0) refused_since_ns_ = now_ns;
    if (now_ns - refused_since_ns_ < kGiveUpNs || target_.fail(stream) != CUDA_SUCCESS)
      return false;
  }
  refused_since_ns_ = 0;
  return true;
}

// With the spare ticket, whose lists are the orphan's, and whose counts stand for it: one transfer
// at a time, else CUDA_ERROR_NOT_READY. What is on its way is not launched again.
CUresult Rescue::carry(Ticket& orphan, CUstream stream) {
  Ticket& spare = tickets_.spare();
  if (carried_ != &orphan) {
    if (carried_ != nullptr || !spare.is_free() || spare.unread) return CUDA_ERROR_NOT_READY;
    Endpoint* const path = &target_;
    MoverJob job;
    job.direction = orphan.direction;
    job.stream = stream;
    job.bytes = orphan.bytes;
    job.paths = {&path, 1};
    const CUresult launched = enqueue_direct(driver_, job, spare);
    if (launched != CUDA_SUCCESS) return launched;
    lists_.hand_over(orphan, spare);
    spare.begin_use(job.direction, job.bytes, orphan.launched_ns);
    carried_ = &orphan;
    carrying_ = stream;
  }
  const CUdeviceptr done = orphan.counters + offsetof(cuda::TicketCounters, done);
  const CUresult opened = driver_.cuStreamWriteValue32(carrying_, done, orphan.done, 0);
  if (opened == CUDA_SUCCESS) carried_ = nullptr;
  return opened;
}

}  // namespace braid::multipath
