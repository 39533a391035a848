// Moving a slice with ordinary loads and stores: 16 bytes a thread, all threads of the block.
#pragma once

#include "cuda/kernels/pull_protocol.cuh"

namespace braid::cuda {

/// Four loads in flight a thread: 512 threads keep 32 KB under way, which covers PCIe's latency.
inline constexpr int kVectorUnroll = 4;

__device__ inline void store16(char* address, uint4 value) {
  asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(address), "r"(value.x),
               "r"(value.y), "r"(value.z), "r"(value.w)
               : "memory");
}

__device__ inline void copy_bytes(char* destination, const char* source, uint64_t size_bytes) {
  for (uint64_t i = threadIdx.x; i < size_bytes; i += blockDim.x) destination[i] = source[i];
}

// Both ends share their alignment, and begin on a 16-byte boundary.
__device__ inline void copy_vectors(char* destination, const char* source, uint64_t size_bytes) {
  const uint64_t stride = uint64_t{blockDim.x} * 16;
  uint64_t at = uint64_t{threadIdx.x} * 16;
  for (; at + (kVectorUnroll - 1) * stride < size_bytes; at += kVectorUnroll * stride) {
    uint4 values[kVectorUnroll];
#pragma unroll
    for (int i = 0; i < kVectorUnroll; ++i) values[i] = load16(source + at + i * stride);
#pragma unroll
    for (int i = 0; i < kVectorUnroll; ++i) store16(destination + at + i * stride, values[i]);
  }
  for (; at < size_bytes; at += stride) store16(destination + at, load16(source + at));
}

// Bytes [shift, shift + 16) of the 32 bytes low:high: by two words, by one, and by bytes. An array
// with an index that is not known before would lie in local memory.
__device__ inline uint4 shift_bytes(uint4 low, uint4 high, unsigned shift) {
  const uint32_t words[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
  uint32_t by_two[6];
#pragma unroll
  for (int i = 0; i < 6; ++i) by_two[i] = (shift & 8) != 0 ? words[i + 2] : words[i];
  uint32_t by_one[5];
#pragma unroll
  for (int i = 0; i < 5; ++i) by_one[i] = (shift & 4) != 0 ? by_two[i + 1] : by_two[i];
  uint32_t out[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) out[i] = __funnelshift_r(by_one[i], by_one[i + 1], (shift % 4) * 8);
  return make_uint4(out[0], out[1], out[2], out[3]);
}

// The ends are aligned differently: read whole 16-byte words around the source, take the bytes that
// spill over from the neighbouring lane, write whole words. The destination begins on a 16-byte
// boundary, and every word read holds a wanted byte.
__device__ inline void copy_shifted(char* destination, const char* source, uint64_t size_bytes) {
  const unsigned shift = static_cast<unsigned>(reinterpret_cast<uint64_t>(source) & 15);
  const char* aligned = source - shift;
  const uint64_t lane = threadIdx.x % 32;
  const uint64_t stride = uint64_t{blockDim.x} * 16;
  for (uint64_t warp_at = uint64_t{threadIdx.x - lane} * 16; warp_at < size_bytes;
       warp_at += kVectorUnroll * stride) {
    uint4 low[kVectorUnroll], last[kVectorUnroll];
#pragma unroll
    for (int i = 0; i < kVectorUnroll; ++i) {
      const uint64_t at = warp_at + i * stride + lane * 16;
      low[i] = last[i] = make_uint4(0, 0, 0, 0);
      if (at < size_bytes) low[i] = load16(aligned + at);
      // The warp's last lane, or the last one with bytes, has no neighbour to take them from.
      if (at < size_bytes && (lane == 31 || at + 16 >= size_bytes))
        last[i] = load16(aligned + at + 16);
    }
#pragma unroll
    for (int i = 0; i < kVectorUnroll; ++i) {
      const uint64_t at = warp_at + i * stride + lane * 16;
      uint4 high =
          make_uint4(__shfl_down_sync(~0u, low[i].x, 1), __shfl_down_sync(~0u, low[i].y, 1),
                     __shfl_down_sync(~0u, low[i].z, 1), __shfl_down_sync(~0u, low[i].w, 1));
      if (lane == 31 || at + 16 >= size_bytes) high = last[i];
      if (at < size_bytes) store16(destination + at, shift_bytes(low[i], high, shift));
    }
  }
}

// `source` and `destination` are the slice's first bytes; the destination's boundaries inside the
// transfer lie on 16 bytes (slice_bounds), so only a transfer's own ends are ragged.
__device__ inline void copy_slice(char* destination, const char* source, uint64_t size_bytes) {
  uint64_t head = (16 - (reinterpret_cast<uint64_t>(destination) & 15)) & 15;
  if (head > size_bytes) head = size_bytes;
  uint64_t body = (size_bytes - head) & ~uint64_t{15};
  const bool same_alignment =
      ((reinterpret_cast<uint64_t>(source) ^ reinterpret_cast<uint64_t>(destination)) & 15) == 0;
  // Shifting reads up to 15 bytes on either side of its range; keep those inside the slice.
  if (!same_alignment && head == 0 && body >= 16) head = 16, body -= 16;
  if (!same_alignment && body >= 16 && size_bytes - head - body < 16) body -= 16;
  copy_bytes(destination, source, head);
  if (same_alignment)
    copy_vectors(destination + head, source + head, body);
  else
    copy_shifted(destination + head, source + head, body);
  copy_bytes(destination + head + body, source + head + body, size_bytes - head - body);
}

/// The slice that all threads of the block copy; a contiguous copy's has one piece.
struct SharedSlice {
  Take taken;
  uint32_t number;
  SliceList list;
};

struct NoFetch {
  __device__ void operator()(uint32_t) {}
};

__device__ inline void read_list(const PullArgs& args, SharedSlice& slice) {
  constexpr uint32_t kWords = sizeof(SliceList) / sizeof(uint4);
  const auto* from = reinterpret_cast<const SliceList*>(args.lists) + slice.number;
  if (threadIdx.x < kWords)
    reinterpret_cast<uint4*>(&slice.list)[threadIdx.x] =
        load16(reinterpret_cast<const uint4*>(from) + threadIdx.x);
  __syncthreads();
}

__device__ inline void make_list(const PullArgs& args, SharedSlice& slice) {
  const Slice bounds = slice_bounds(args, slice.number);
  slice.list.piece_count = 1;
  slice.list.size_bytes = static_cast<uint32_t>(bounds.size_bytes);
  slice.list.pieces[0] = {args.source + bounds.offset, args.destination + bounds.offset,
                          slice.list.size_bytes, 0};
}

__device__ inline void copy_pieces(const SliceList& list) {
  for (uint32_t i = 0; i < list.piece_count; ++i) {
    const SlicePiece& piece = list.pieces[i];
    copy_slice(reinterpret_cast<char*>(piece.destination),
               reinterpret_cast<const char*>(piece.source), piece.size_bytes);
  }
}

template <bool kLists>
__device__ void pull_vector(const PullArgs& args, SharedSlice& slice) {
  NoFetch no_fetch;
  PullProtocol<kLists> protocol(args);
  if (threadIdx.x == 0) protocol.enter();
  while (true) {
    if (threadIdx.x == 0) {
      while ((slice.taken = protocol.take(slice.number, no_fetch)) == Take::kRest) {
        protocol.land();
        protocol.rest();
      }
      if (!kLists && slice.taken == Take::kSlice) make_list(args, slice);
    }
    __syncthreads();
    if (slice.taken == Take::kOver) break;
    if (kLists) read_list(args, slice);
    copy_pieces(slice.list);
    if (threadIdx.x == 0) protocol.count(slice.list.size_bytes);
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    protocol.land();
    protocol.leave();
  }
}

__device__ inline void pull_vector(const PullArgs& args) {
  __shared__ SharedSlice slice;
  if (args.lists != 0)
    pull_vector<true>(args, slice);
  else
    pull_vector<false>(args, slice);
}

}  // namespace braid::cuda
