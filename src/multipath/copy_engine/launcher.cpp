#include "multipath/copy_engine/launcher.h"

#include <algorithm>

namespace braid::multipath::copy_engine {
namespace {

struct Run {
  uint64_t source = 0;
  uint64_t destination = 0;
  uint64_t size_bytes = 0;
};

// The ends of one hop of `size_bytes` that begin `skipped` bytes into the piece.
Run run_of(const HopJob& job, const Piece& piece, uint64_t skipped, uint64_t size_bytes) {
  const bool to_device = job.slice->direction == Direction::kHostToDevice;
  const uint64_t host = piece.host + skipped;
  const uint64_t device = piece.device + skipped;
  const uint64_t buffer = job.buffer + (piece.offset + skipped - job.slice->offset);
  const uint64_t from = to_device ? host : device;
  const uint64_t to = to_device ? device : host;
  return {job.hop == Hop::kFromBuffer ? buffer : from, job.hop == Hop::kToBuffer ? buffer : to,
          size_bytes};
}

CUresult copy(const cuda::Driver& driver, const HopJob& job, const Run& run) {
  if (!uses_link(job.hop, job.slice->direction)) {
    const bool to_target = job.hop == Hop::kFromBuffer;
    return driver.cuMemcpyPeerAsync(run.destination, to_target ? job.target : job.via, run.source,
                                    to_target ? job.via : job.target, run.size_bytes, job.stream);
  }
  if (job.slice->direction == Direction::kHostToDevice)
    return driver.cuMemcpyHtoDAsync(run.destination, reinterpret_cast<const void*>(run.source),
                                    run.size_bytes, job.stream);
  return driver.cuMemcpyDtoHAsync(reinterpret_cast<void*>(run.destination), run.source,
                                  run.size_bytes, job.stream);
}

}  // namespace

CUresult launch(const cuda::Driver& driver, const HopJob& job) {
  const Slice& slice = *job.slice;
  const uint64_t end = slice.offset + slice.size_bytes;
  Run run;
  size_t index = slice.first_piece;
  for (uint64_t at = slice.offset; at < end; ++index) {
    const Piece& piece = job.pieces[index];
    const uint64_t skipped = at - piece.offset;
    const uint64_t size_bytes = std::min(piece.size_bytes - skipped, end - at);
    const Run next = run_of(job, piece, skipped, size_bytes);
    at += size_bytes;
    if (run.source + run.size_bytes == next.source &&
        run.destination + run.size_bytes == next.destination) {
      run.size_bytes += size_bytes;
      continue;
    }
    if (run.size_bytes != 0)
      if (const CUresult result = copy(driver, job, run); result != CUDA_SUCCESS) return result;
    run = next;
  }
  return copy(driver, job, run);
}

}  // namespace braid::multipath::copy_engine
