// The linear copies. One function makes them all: the two ends are looked up, and what they are
// says when the call may return (CUDA driver API, "API synchronization behavior").
#include <cstring>
#include <utility>

#include "emulator/api/copy_end.h"
#include "emulator/constants.h"
#include "emulator/ops/ops.h"

namespace braid::emulator {

CUresult find_end(Call& call, uint64_t address, uint64_t size_bytes, EndKind kind, CopyEnd& end) {
  const Allocation* allocation = call.world.memory.find(address);
  if (allocation == nullptr) {
    // Pageable memory lies on node 0. Whether it is mapped at all is looked at here.
    void* at = reinterpret_cast<void*>(address);
    if (kind == EndKind::kKnown || !is_readable(at, size_bytes)) return CUDA_ERROR_INVALID_VALUE;
    end = {};
    end.address = address;
    end.bytes = static_cast<std::byte*>(at);
    return CUDA_SUCCESS;
  }
  if (kind == EndKind::kHost && !allocation->is_host()) return CUDA_ERROR_INVALID_VALUE;
  if (!allocation->holds(address, size_bytes)) return CUDA_ERROR_INVALID_VALUE;
  end.address = address;
  end.bytes = allocation->bytes_at(address);
  end.place = allocation->place;
  end.context = allocation->context;
  end.buffer_id = allocation->buffer_id;
  end.sync_memops = allocation->sync_memops;
  return CUDA_SUCCESS;
}

namespace {

enum class Waiting { kSynchronous, kAsynchronous };

bool host_waits(const Copy& copy, Waiting waiting) {
  const bool from_host = !copy.source.place.is_gpu();
  const bool to_host = !copy.destination.place.is_gpu();
  if (copy.source.sync_memops || copy.destination.sync_memops) return true;
  if (from_host && to_host) return true;
  if (copy.destination.pageable()) return true;
  return waiting == Waiting::kSynchronous && (from_host || to_host);
}

// An asynchronous copy from pageable memory returns when the bytes are in the driver's buffer; a
// CPU thread moves them there while the engine takes them out.
void stage(Copy& copy) {
  copy.staged = std::make_shared_for_overwrite<std::byte[]>(copy.size_bytes);
  std::memcpy(copy.staged.get(), copy.source.bytes, copy.size_bytes);
}

double staging_us(uint64_t size_bytes) {
  return static_cast<double>(size_bytes) / (kPageableGbps * 1e3);
}

CUresult start(Call& call, const StreamPtr& stream, Copy copy, Waiting waiting) {
  if (waiting == Waiting::kSynchronous) BRAID_TRY(refuse_during_capture(call));
  BRAID_CAPTURE(stream);
  if (copy.size_bytes == 0) return CUDA_SUCCESS;
  const bool waits = host_waits(copy, waiting);
  const bool stages = !waits && copy.source.pageable();
  const double staging = stages ? staging_us(copy.size_bytes) : 0;
  if (stages) stage(copy);
  const CompletionPtr end = enqueue_copy(call.world, stream, std::move(copy));
  call.world.clock.spend_us(staging);
  return waits ? wait_for_end(call, stream, end) : CUDA_SUCCESS;
}

// Nothing is looked up for a copy of no bytes: its addresses may be anything.
CUresult copy_between(Call& call, uint64_t destination, EndKind destination_kind, uint64_t source,
                      EndKind source_kind, size_t size_bytes, CUstream handle, Waiting waiting) {
  StreamPtr stream;
  BRAID_TRY(find_stream(call, handle, stream));
  Copy copy;
  copy.size_bytes = size_bytes;
  if (size_bytes > 0) {
    BRAID_TRY(find_end(call, destination, size_bytes, destination_kind, copy.destination));
    BRAID_TRY(find_end(call, source, size_bytes, source_kind, copy.source));
  }
  return start(call, stream, std::move(copy), waiting);
}

uint64_t number(const void* address) { return reinterpret_cast<uint64_t>(address); }

CUresult any(Call& call, CUdeviceptr to, CUdeviceptr from, size_t size) {
  return copy_between(call, to, EndKind::kAny, from, EndKind::kAny, size, nullptr,
                      Waiting::kSynchronous);
}
CUresult any_async(Call& call, CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
  return copy_between(call, to, EndKind::kAny, from, EndKind::kAny, size, stream,
                      Waiting::kAsynchronous);
}
CUresult h2d(Call& call, CUdeviceptr to, const void* from, size_t size) {
  return copy_between(call, to, EndKind::kKnown, number(from), EndKind::kHost, size, nullptr,
                      Waiting::kSynchronous);
}
CUresult h2d_async(Call& call, CUdeviceptr to, const void* from, size_t size, CUstream stream) {
  return copy_between(call, to, EndKind::kKnown, number(from), EndKind::kHost, size, stream,
                      Waiting::kAsynchronous);
}
CUresult d2h(Call& call, void* to, CUdeviceptr from, size_t size) {
  return copy_between(call, number(to), EndKind::kHost, from, EndKind::kKnown, size, nullptr,
                      Waiting::kSynchronous);
}
CUresult d2h_async(Call& call, void* to, CUdeviceptr from, size_t size, CUstream stream) {
  return copy_between(call, number(to), EndKind::kHost, from, EndKind::kKnown, size, stream,
                      Waiting::kAsynchronous);
}
CUresult d2d(Call& call, CUdeviceptr to, CUdeviceptr from, size_t size) {
  return copy_between(call, to, EndKind::kKnown, from, EndKind::kKnown, size, nullptr,
                      Waiting::kSynchronous);
}
CUresult d2d_async(Call& call, CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
  return copy_between(call, to, EndKind::kKnown, from, EndKind::kKnown, size, stream,
                      Waiting::kAsynchronous);
}

CUresult check_contexts(Call& call, CUcontext to, CUcontext from) {
  ContextPtr context;
  for (const CUcontext handle : {to, from}) {
    BRAID_TRY(find_context(call, handle, context));
    BRAID_TRY(context->error);
  }
  return CUDA_SUCCESS;
}

CUresult peer(Call& call, CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
              CUcontext from_context, size_t size) {
  BRAID_TRY(check_contexts(call, to_context, from_context));
  return d2d(call, to, from, size);
}
CUresult peer_async(Call& call, CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                    CUcontext from_context, size_t size, CUstream stream) {
  BRAID_TRY(check_contexts(call, to_context, from_context));
  return d2d_async(call, to, from, size, stream);
}

}  // namespace
}  // namespace braid::emulator

using namespace braid::emulator;

BRAID_ENTRY_STREAM(cuMemcpy, _ptds, Cost::kEnqueue, any,
                   (CUdeviceptr to, CUdeviceptr from, size_t size), (to, from, size))
BRAID_ENTRY_STREAM(cuMemcpyAsync, _ptsz, Cost::kEnqueue, any_async,
                   (CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream),
                   (to, from, size, stream))
BRAID_ENTRY_STREAM(cuMemcpyHtoD_v2, _ptds, Cost::kEnqueue, h2d,
                   (CUdeviceptr to, const void* from, size_t size), (to, from, size))
BRAID_ENTRY_STREAM(cuMemcpyHtoDAsync_v2, _ptsz, Cost::kEnqueue, h2d_async,
                   (CUdeviceptr to, const void* from, size_t size, CUstream stream),
                   (to, from, size, stream))
BRAID_ENTRY_STREAM(cuMemcpyDtoH_v2, _ptds, Cost::kEnqueue, d2h,
                   (void* to, CUdeviceptr from, size_t size), (to, from, size))
BRAID_ENTRY_STREAM(cuMemcpyDtoHAsync_v2, _ptsz, Cost::kEnqueue, d2h_async,
                   (void* to, CUdeviceptr from, size_t size, CUstream stream),
                   (to, from, size, stream))
BRAID_ENTRY_STREAM(cuMemcpyDtoD_v2, _ptds, Cost::kEnqueue, d2d,
                   (CUdeviceptr to, CUdeviceptr from, size_t size), (to, from, size))
BRAID_ENTRY_STREAM(cuMemcpyDtoDAsync_v2, _ptsz, Cost::kEnqueue, d2d_async,
                   (CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream),
                   (to, from, size, stream))
BRAID_ENTRY_STREAM(cuMemcpyPeer, _ptds, Cost::kEnqueue, peer,
                   (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                    size_t size),
                   (to, to_context, from, from_context, size))
BRAID_ENTRY_STREAM(cuMemcpyPeerAsync, _ptsz, Cost::kEnqueue, peer_async,
                   (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                    size_t size, CUstream stream),
                   (to, to_context, from, from_context, size, stream))
