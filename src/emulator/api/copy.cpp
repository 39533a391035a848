// The linear copies. One function makes them all: the two ends are looked up, and what they are
// says when the call may return.
#include <utility>

#include "emulator/api/copy_end.h"
#include "emulator/api/copy_issue.h"

namespace braid::emulator {
namespace {

// Nothing is looked up for a copy of no bytes: its addresses may be anything.
CUresult copy_between(Call& call, uint64_t destination, EndKind destination_kind, uint64_t source,
                      EndKind source_kind, size_t size_bytes, CUstream handle, Waiting waiting,
                      Copy copy = {}) {
  StreamPtr stream;
  BRAID_TRY(find_stream(call, handle, stream));
  copy.extent.width_bytes = size_bytes;
  if (size_bytes > 0) {
    BRAID_TRY(find_end(call, destination, size_bytes, destination_kind, copy.destination));
    BRAID_TRY(find_end(call, source, size_bytes, source_kind, copy.source));
  }
  return issue_copy(call, stream, std::move(copy), waiting);
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

CUresult peer(Call& call, CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
              CUcontext from_context, size_t size) {
  Copy copy;
  BRAID_TRY(find_peers(call, to_context, from_context, copy));
  return copy_between(call, to, EndKind::kKnown, from, EndKind::kKnown, size, nullptr,
                      Waiting::kSynchronous, std::move(copy));
}
CUresult peer_async(Call& call, CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                    CUcontext from_context, size_t size, CUstream stream) {
  Copy copy;
  BRAID_TRY(find_peers(call, to_context, from_context, copy));
  return copy_between(call, to, EndKind::kKnown, from, EndKind::kKnown, size, stream,
                      Waiting::kAsynchronous, std::move(copy));
}

}  // namespace

BRAID_ENTRY_STREAM(cuMemcpy, _ptds, Cost::kEnqueue, 3, any)
BRAID_ENTRY_STREAM(cuMemcpyAsync, _ptsz, Cost::kEnqueue, 4, any_async)
BRAID_ENTRY_STREAM(cuMemcpyHtoD_v2, _ptds, Cost::kEnqueue, 3, h2d)
BRAID_ENTRY_STREAM(cuMemcpyHtoDAsync_v2, _ptsz, Cost::kEnqueue, 4, h2d_async)
BRAID_ENTRY_STREAM(cuMemcpyDtoH_v2, _ptds, Cost::kEnqueue, 3, d2h)
BRAID_ENTRY_STREAM(cuMemcpyDtoHAsync_v2, _ptsz, Cost::kEnqueue, 4, d2h_async)
BRAID_ENTRY_STREAM(cuMemcpyDtoD_v2, _ptds, Cost::kEnqueue, 3, d2d)
BRAID_ENTRY_STREAM(cuMemcpyDtoDAsync_v2, _ptsz, Cost::kEnqueue, 4, d2d_async)
BRAID_ENTRY_STREAM(cuMemcpyPeer, _ptds, Cost::kEnqueue, 5, peer)
BRAID_ENTRY_STREAM(cuMemcpyPeerAsync, _ptsz, Cost::kEnqueue, 6, peer_async)

}  // namespace braid::emulator
