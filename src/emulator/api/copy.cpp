// The linear copies. One function makes them all: the two ends are looked up, and what they are
// says when the call may return.
#include <utility>

#include "emulator/api/copy_end.h"
#include "emulator/api/copy_issue.h"

namespace braid::emulator {
namespace {

// An end as a call names it: by a pointer of the host's, or by an address of that kind.
struct NamedEnd {
  uint64_t address;
  EndKind kind;
};
NamedEnd named(const void* pointer, EndKind) {
  return {reinterpret_cast<uint64_t>(pointer), EndKind::kHost};
}
NamedEnd named(CUdeviceptr address, EndKind kind) { return {address, kind}; }

// Nothing is looked up for a copy of no bytes: its addresses may be anything.
CUresult copy_between(Call& call, NamedEnd to, NamedEnd from, size_t size_bytes, CUstream handle,
                      Waiting waiting, Copy copy = {}) {
  BRAID_LET(stream, find_stream(call, handle));
  copy.extent.width_bytes = size_bytes;
  if (size_bytes > 0) {
    BRAID_TRY(find_end(call, to.address, size_bytes, to.kind, copy.destination));
    BRAID_TRY(find_end(call, from.address, size_bytes, from.kind, copy.source));
  }
  return issue_copy(call, stream, std::move(copy), waiting);
}

template <typename To, typename From, EndKind kind = EndKind::kKnown>
CUresult copy(Call& call, To to, From from, size_t size_bytes) {
  return copy_between(call, named(to, kind), named(from, kind), size_bytes, nullptr,
                      Waiting::kSynchronous);
}
template <typename To, typename From, EndKind kind = EndKind::kKnown>
CUresult copy_async(Call& call, To to, From from, size_t size_bytes, CUstream stream) {
  return copy_between(call, named(to, kind), named(from, kind), size_bytes, stream,
                      Waiting::kAsynchronous);
}

CUresult peer_copy(Call& call, CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                   CUcontext from_context, size_t size_bytes, CUstream stream, Waiting waiting) {
  Copy copy;
  BRAID_TRY(find_peers(call, to_context, from_context, copy));
  return copy_between(call, {to, EndKind::kKnown}, {from, EndKind::kKnown}, size_bytes, stream,
                      waiting, std::move(copy));
}
CUresult peer(Call& call, CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
              CUcontext from_context, size_t size_bytes) {
  return peer_copy(call, to, to_context, from, from_context, size_bytes, nullptr,
                   Waiting::kSynchronous);
}
CUresult peer_async(Call& call, CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                    CUcontext from_context, size_t size_bytes, CUstream stream) {
  return peer_copy(call, to, to_context, from, from_context, size_bytes, stream,
                   Waiting::kAsynchronous);
}

}  // namespace

BRAID_ENTRY_STREAM(cuMemcpy, _ptds, Cost::kEnqueue, 3,
                   copy<CUdeviceptr, CUdeviceptr, EndKind::kAny>)
BRAID_ENTRY_STREAM(cuMemcpyAsync, _ptsz, Cost::kEnqueue, 4,
                   copy_async<CUdeviceptr, CUdeviceptr, EndKind::kAny>)
BRAID_ENTRY_STREAM(cuMemcpyHtoD_v2, _ptds, Cost::kEnqueue, 3, copy<CUdeviceptr, const void*>)
BRAID_ENTRY_STREAM(cuMemcpyHtoDAsync_v2, _ptsz, Cost::kEnqueue, 4,
                   copy_async<CUdeviceptr, const void*>)
BRAID_ENTRY_STREAM(cuMemcpyDtoH_v2, _ptds, Cost::kEnqueue, 3, copy<void*, CUdeviceptr>)
BRAID_ENTRY_STREAM(cuMemcpyDtoHAsync_v2, _ptsz, Cost::kEnqueue, 4, copy_async<void*, CUdeviceptr>)
BRAID_ENTRY_STREAM(cuMemcpyDtoD_v2, _ptds, Cost::kEnqueue, 3, copy<CUdeviceptr, CUdeviceptr>)
BRAID_ENTRY_STREAM(cuMemcpyDtoDAsync_v2, _ptsz, Cost::kEnqueue, 4,
                   copy_async<CUdeviceptr, CUdeviceptr>)
BRAID_ENTRY_STREAM(cuMemcpyPeer, _ptds, Cost::kEnqueue, 5, peer)
BRAID_ENTRY_STREAM(cuMemcpyPeerAsync, _ptsz, Cost::kEnqueue, 6, peer_async)

}  // namespace braid::emulator
