#include "transfer/backends/gpu.h"

namespace braid::transfer {
namespace {

fabric::gpu::CopyKind kind_between(const Buffer& from, const Buffer& to) {
  if (from.lane == nullptr) return fabric::gpu::CopyKind::kToGpu;
  return to.lane == nullptr ? fabric::gpu::CopyKind::kToHost : fabric::gpu::CopyKind::kBetweenGpus;
}

}  // namespace

void GpuBackend::post(uint32_t, const Piece& piece) {
  const bool is_write = piece.operation == Operation::kWrite;
  const Buffer* far = nullptr;
  const Cause cause =
      check(buffers_, piece.address, piece.local.size(), is_write ? kMayWrite : kMayRead, far);
  if (cause != Cause::kNone) return tell(piece.id, cause);
  const Buffer& near = *buffers_.find(piece.buffer);
  std::byte* there = far->memory.data() + (piece.address - far->address());
  const Buffer& from = is_write ? near : *far;
  const Buffer& to = is_write ? *far : near;
  GpuJob job;
  job.lane = from.lane != nullptr ? from.lane : to.lane;
  job.kind = kind_between(from, to);
  job.to = is_write ? there : piece.local.data();
  job.from = is_write ? piece.local.data() : there;
  job.size_bytes = piece.local.size();
  job.regions = from.id << 32 ^ to.id;
  job.ended = [this, id = piece.id](bool ok) {
    this->ended(id, ok ? Cause::kNone : Cause::kGpuError);
  };
  begin();
  jobs_.start(std::move(job));
}

}  // namespace braid::transfer
