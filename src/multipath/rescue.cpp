#include "multipath/rescue.h"

#include <cstddef>

#include "cuda/scoped_context.h"

namespace braid::multipath {
namespace {

// A slice takes less than a millisecond, on a link that eight flows share too; this allows for a
// relay that other processes use in turns.
constexpr uint64_t kStillNs = 500'000'000;
// And then, while the driver refuses to copy.
constexpr uint64_t kGiveUpNs = 2'000'000'000;

}  // namespace

Rescue::~Rescue() {
  if (stream_ == nullptr || target_.is_abandoned()) return;
  const cuda::ScopedContext scope(driver_, target_.context());
  if (scope.status() == CUDA_SUCCESS) driver_.cuStreamDestroy(stream_);
}

bool Rescue::open_stream() {
  return stream_ != nullptr ||
         driver_.cuStreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING,
                                            target_.stream_priority()) == CUDA_SUCCESS;
}

// What a step has asked for, the next one reads.
void Rescue::step(uint64_t now_ns) {
  const cuda::ScopedContext scope(driver_, target_.context());
  if (scope.status() != CUDA_SUCCESS || !open_stream() ||
      driver_.cuStreamQuery(stream_) != CUDA_SUCCESS)
    return;
  std::vector<Ticket>& tickets = tickets_.tickets();
  for (size_t i = 0; has_read_ && i < tickets.size(); ++i)
    if (tickets[i].is_orphan && tickets[i].is_in_use()) judge(tickets[i], watched_[i], now_ns);
  has_read_ = tickets_.read_counters(stream_) == CUDA_SUCCESS;
}

void Rescue::judge(Ticket& ticket, Watched& watched, uint64_t now_ns) {
  const cuda::TicketCounters& seen = tickets_.seen(ticket);
  if (seen.done == ticket.done) {
    ticket.retired = true;
    return;
  }
  const Progress progress{ticket.generation, seen.next, seen.done, seen.left};
  if (progress != watched.progress) watched = {progress, now_ns};
  const uint64_t still_ns = now_ns - watched.since_ns;
  if (seen.next < ticket.bytes.slice_count || still_ns < kStillNs) return;
  if (carry(ticket) != CUDA_SUCCESS) {
    if (still_ns < kStillNs + kGiveUpNs) return;
    target_.fail(stream_);
  }
  ticket.retired = true;
}

CUresult Rescue::carry(const Ticket& ticket) {
  const CUresult copied = copy_again(ticket.bytes);
  if (copied != CUDA_SUCCESS) return copied;
  const CUdeviceptr done = ticket.counters + offsetof(cuda::TicketCounters, done);
  return driver_.cuStreamWriteValue32(stream_, done, ticket.done, 0);
}

CUresult Rescue::copy_again(const SlicedBytes& bytes) {
  if (bytes.lists == 0)
    return driver_.cuMemcpyAsync(bytes.destination, bytes.source, bytes.size_bytes, stream_);
  const auto* lists = reinterpret_cast<const cuda::SliceList*>(bytes.lists);
  for (const cuda::SliceList* list = lists; list != lists + bytes.slice_count; ++list)
    for (uint32_t piece = 0; piece < list->piece_count; ++piece)
      if (const CUresult result = driver_.cuMemcpyAsync(
              list->destinations[piece], list->sources[piece], list->piece_bytes[piece], stream_);
          result != CUDA_SUCCESS)
        return result;
  return CUDA_SUCCESS;
}

}  // namespace braid::multipath
