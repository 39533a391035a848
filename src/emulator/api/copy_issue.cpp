#include "emulator/api/copy_issue.h"

#include <algorithm>
#include <utility>

#include "emulator/constants.h"
#include "emulator/ops/rows.h"

namespace braid::emulator {
namespace {

// CUDA driver API, "API synchronization behavior".
bool host_waits(const Copy& copy, Waiting waiting) {
  const bool from_host = !copy.source.place.is_gpu();
  const bool to_host = !copy.destination.place.is_gpu();
  if (copy.source.sync_memops || copy.destination.sync_memops) return true;
  if (from_host && to_host) return true;
  if (copy.destination.pageable()) return true;
  // The driver's CPU thread reads pageable memory, so for stream order it waits for the stream.
  if (copy.source.pageable() && copy.read == SourceRead::kInStream) return true;
  // Only an engine reads device memory; the call cannot return before it has.
  if (!from_host && copy.read == SourceRead::kDuringCall) return true;
  // The last bytes of pageable memory are still on their way from the driver's buffer.
  if (copy.source.pageable()) return false;
  return waiting == Waiting::kSynchronous && (from_host || to_host);
}

// While a host waits for the legacy stream, and so for the blocking ones, to let its copy begin or
// end, it holds the context's lock. Measured on 2xH200: not so while it waits for another stream.
CUresult wait_with_lock(Call& call, const StreamPtr& stream, const CompletionPtr& end) {
  const ContextPtr context = stream->context.lock();
  if (!stream->legacy || context == nullptr) return wait_for_end(call, stream, end);
  while (call.world.wait_for_lock(call.lock, *context)) {
  }
  const HeldLock held(context->locked);
  return wait_for_end(call, stream, end);
}

bool has_pageable_source(const std::vector<Copy>& copies) {
  return std::any_of(copies.begin(), copies.end(),
                     [](const Copy& copy) { return copy.source.pageable(); });
}

void stage(Copy& copy) {
  copy.staged = std::make_shared_for_overwrite<std::byte[]>(copy.extent.size_bytes());
  move_rows(packed_end(copy.staged.get(), copy.extent), copy.source, copy.extent);
}

// Reads what has to be read, or may be read, before the call returns, and says how long the CPU
// takes for it. Sources that may be read at any time are read at once, so that a program which
// promised too much gets wrong bytes here too; no time is charged, since nobody has to wait.
double read_early(std::vector<Copy>& copies, bool waits) {
  uint64_t staged_bytes = 0;
  for (Copy& copy : copies) {
    const bool during = copy.read == SourceRead::kDuringCall && !waits;
    if (during || copy.read == SourceRead::kAnyTime) stage(copy);
    // A CPU thread moves these to the driver's buffer while the engine takes them out.
    if (during) staged_bytes += copy.extent.size_bytes();
  }
  return static_cast<double>(staged_bytes) / (kPageableGbps * 1e3);
}

}  // namespace

CUresult issue_copies(Call& call, const StreamPtr& stream, std::vector<Copy> copies,
                      Waiting waiting) {
  std::erase_if(copies, [](const Copy& copy) { return copy.extent.empty(); });
  if (copies.empty()) return CUDA_SUCCESS;
  const bool waits = std::any_of(copies.begin(), copies.end(),
                                 [&](const Copy& copy) { return host_waits(copy, waiting); });
  // A synchronous copy of pageable memory begins when the stream has come so far.
  if (waiting == Waiting::kSynchronous && !waits && has_pageable_source(copies))
    BRAID_TRY(wait_with_lock(call, stream, enqueue_marker(call.world, stream)));
  const double reading_us = read_early(copies, waits);
  const CompletionPtr end = enqueue_copies(call.world, stream, std::move(copies));
  call.world.clock.spend_us(reading_us);
  return waits ? wait_with_lock(call, stream, end) : CUDA_SUCCESS;
}

CUresult issue_copy(Call& call, const StreamPtr& stream, Copy copy, Waiting waiting) {
  BRAID_TRY(check_capture(stream, waiting == Waiting::kSynchronous));
  // A graph reads pageable memory when it is launched.
  const bool reads_now = copy.source.pageable() && stream->capture == nullptr;
  copy.read = reads_now ? SourceRead::kDuringCall : SourceRead::kInStream;
  std::vector<Copy> copies;
  copies.push_back(std::move(copy));
  return issue_copies(call, stream, std::move(copies), waiting);
}

}  // namespace braid::emulator
