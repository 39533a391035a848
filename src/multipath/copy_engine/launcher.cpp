#include "multipath/copy_engine/launcher.h"

#include <algorithm>

namespace braid::multipath::copy_engine {
namespace {

constexpr uint32_t kMostPieces = 512;         // a slice of 4 MB in segments of 8 KB
constexpr uint32_t kMostPiecesOneByOne = 64;  // 90 us of the thread

struct Run {
  uint64_t source = 0;
  uint64_t destination = 0;
};

// The ends of one hop of bytes that begin `skipped` bytes into the piece.
Run run_of(const HopJob& job, const Piece& piece, uint64_t skipped) {
  const bool to_device = job.slice->direction == Direction::kHostToDevice;
  const uint64_t host = piece.host + skipped;
  const uint64_t device = piece.device + skipped;
  const uint64_t buffer = job.buffer + (piece.offset + skipped - job.slice->offset);
  const uint64_t from = to_device ? host : device;
  const uint64_t to = to_device ? device : host;
  return {job.hop == Hop::kFromBuffer ? buffer : from, job.hop == Hop::kToBuffer ? buffer : to};
}

}  // namespace

Launcher::Launcher(const cuda::Driver& driver) : driver_(driver) {
  const size_t most = driver.copy_batch != nullptr ? kMostPieces : kMostPiecesOneByOne;
  to_.resize(most);
  from_.resize(most);
  sizes_.resize(most);
}

CUresult Launcher::launch(const HopJob& job) {
  const Slice& slice = *job.slice;
  const uint64_t end = slice.offset + slice.size_bytes;
  size_t runs = 0;
  size_t index = slice.first_piece;
  for (uint64_t at = slice.offset; at < end; ++index) {
    const Piece& piece = job.pieces[index];
    const uint64_t skipped = at - piece.offset;
    const uint64_t size_bytes = std::min(piece.size_bytes - skipped, end - at);
    const Run next = run_of(job, piece, skipped);
    at += size_bytes;
    if (runs != 0 && from_[runs - 1] + sizes_[runs - 1] == next.source &&
        to_[runs - 1] + sizes_[runs - 1] == next.destination) {
      sizes_[runs - 1] += size_bytes;
      continue;
    }
    from_[runs] = next.source;
    to_[runs] = next.destination;
    sizes_[runs++] = size_bytes;
  }
  const bool is_batch = runs > 1 && driver_.copy_batch != nullptr && slice.attempts == 0;
  if (is_batch) return copy_all(job, runs);
  for (size_t run = 0; run < runs; ++run)
    if (const CUresult result = copy(job, run); result != CUDA_SUCCESS) return result;
  return CUDA_SUCCESS;
}

CUresult Launcher::copy(const HopJob& job, size_t run) const {
  const CUdeviceptr to = to_[run];
  const CUdeviceptr from = from_[run];
  const size_t size_bytes = sizes_[run];
  if (!uses_link(job.hop, job.slice->direction)) {
    const bool to_target = job.hop == Hop::kFromBuffer;
    return driver_.cuMemcpyPeerAsync(to, to_target ? job.target : job.via, from,
                                     to_target ? job.via : job.target, size_bytes, job.stream);
  }
  if (job.slice->direction == Direction::kHostToDevice)
    return driver_.cuMemcpyHtoDAsync(to, reinterpret_cast<const void*>(from), size_bytes,
                                     job.stream);
  return driver_.cuMemcpyDtoHAsync(reinterpret_cast<void*>(to), from, size_bytes, job.stream);
}

// The stream's order holds for sources too: the buffer is filled by the hop before.
CUresult Launcher::copy_all(const HopJob& job, size_t runs) {
  CUmemcpyAttributes attributes{};
  attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  size_t first = 0;
  size_t failed = 0;
  return driver_.copy_batch(to_.data(), from_.data(), sizes_.data(), runs, &attributes, &first, 1,
                            &failed, job.stream);
}

}  // namespace braid::multipath::copy_engine
