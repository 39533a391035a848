#include "preload/intercept.h"

#include "multipath/staging/stager.h"
#include "preload/helper.h"

namespace braid::preload {
namespace {

using multipath::Batch;
using multipath::Direction;
using multipath::Outcome;
using multipath::Priority;
using multipath::Segment;
using multipath::Verdict;

Priority priority_of(CUstream stream) {
  if (stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD) return Priority::kBulk;
  int priority = 0;
  const bool is_known = driver()->cuStreamGetPriority(stream, &priority) == CUDA_SUCCESS;
  return is_known && priority < 0 ? Priority::kUrgent : Priority::kBulk;
}

// A copy has come that relays would carry: they are opened beside the program.
void open_wanted_relays(const multipath::Engine& open) noexcept {
  if (open.has_wishes()) open_relays(Opening::kInBackground);
}

}  // namespace

void Described::set(Direction direction, std::span<const Segment> segments, CUstream stream) {
  batch = {direction, segments, stream, priority_of(stream), ends ? &*ends : nullptr};
}

std::optional<Direction> Described::find_direction(CUdeviceptr to, CUdeviceptr from) {
  ends = multipath::find_ends(*driver(), to, from);
  return ends ? std::optional(ends->direction) : std::nullopt;
}

Segment segment_of(Direction direction, CUdeviceptr to, CUdeviceptr from, uint64_t size_bytes) {
  const bool to_device = direction == Direction::kHostToDevice;
  return {reinterpret_cast<void*>(to_device ? from : to), to_device ? to : from, size_bytes};
}

Outcome offer(const Batch& batch) {
  multipath::Engine* open = engine();
  if (open == nullptr) return Verdict::kNotReady;
  const Outcome outcome = open->submit(batch);
  if (outcome == Verdict::kNotReady) open_wanted_relays(*open);
  return outcome;
}

std::optional<multipath::Staged> stage(const multipath::Batch& batch, Verdict declined,
                                       Wait wait) noexcept try {
  if (!multipath::staging::Stager::may_take(batch, declined)) return std::nullopt;
  const multipath::Segment& all = batch.segments.front();
  if (all.size_bytes < staging_bytes()) return std::nullopt;
  multipath::Engine* open = engine();
  if (open == nullptr) return std::nullopt;
  // This copy may wait natively.
  if (options().waits_for_relays && !open->is_open()) open_relays(Opening::kNow);
  const auto staged = open->stage(
      {batch.direction, all.host, all.device, all.size_bytes, batch.stream, batch.priority},
      wait == Wait::kYes);
  open_wanted_relays(*open);  // as its chunks have found
  return staged;
} catch (...) {
  return std::nullopt;  // what has moved will be moved again
}

}  // namespace braid::preload
