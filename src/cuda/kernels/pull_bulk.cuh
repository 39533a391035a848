// Moving slices with bulk asynchronous copies (sm_90 and newer): one thread drives a ring of
// shared-memory stages, loads running ahead of stores across slice boundaries, so that the link
// never waits for a slice to end. Both ends must have the same alignment modulo 16 (the host
// checks).
#pragma once

#include "cuda/kernels/pull_protocol.cuh"

namespace braid::cuda {

#if __CUDA_ARCH__ >= 900

__device__ inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

/// Bytes into shared memory, counted by the barrier. Both addresses and the size: multiples of 16.
__device__ inline void bulk_load(uint32_t to, const void* from, uint32_t size_bytes,
                                 uint32_t barrier) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
               "r"(size_bytes)
               : "memory");
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(size_bytes), "r"(barrier)
      : "memory");
}

__device__ inline void wait_loaded(uint32_t barrier, uint32_t parity) {
  uint32_t loaded = 0;
  while (loaded == 0) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
        "selp.u32 %0, 1, 0, done;\n"
        "}\n"
        : "=r"(loaded)
        : "r"(barrier), "r"(parity)
        : "memory");
  }
}

/// One slot of the ring: where its bytes go. Size 0: copied already, nothing to store.
struct Chunk {
  char* destination;
  uint32_t size_bytes;
};

/// Slice lists of a batch, fetched two ahead into shared memory.
class ListFetcher {
 public:
  __device__ ListFetcher(uint64_t lists, SliceList* buffers, uint64_t* barriers)
      : lists_(lists), buffers_(buffers), barriers_(barriers) {}

  __device__ void operator()(uint32_t number) {
    const uint32_t slot = fetched_++ & 1;
    const auto* list = reinterpret_cast<const SliceList*>(lists_) + number;
    bulk_load(shared_address(&buffers_[slot]), list, sizeof(SliceList),
              shared_address(&barriers_[slot]));
  }

  /// The oldest list that was fetched and not yet read. Its buffer is filled again by the fetch
  /// after the next.
  __device__ const SliceList& read() {
    const uint32_t slot = read_++ & 1;
    wait_loaded(shared_address(&barriers_[slot]), (phases_ >> slot) & 1);
    phases_ ^= 1u << slot;
    return buffers_[slot];
  }

 private:
  uint64_t lists_;
  SliceList* buffers_;
  uint64_t* barriers_;
  uint32_t fetched_ = 0;
  uint32_t read_ = 0;
  uint32_t phases_ = 0;
};

/// The rings, as template arguments.
struct WideRing {
  static constexpr BulkRing kRing = kBulkRing;
};
struct ToHostRing {
  static constexpr BulkRing kRing = kToHostRing;
};

/// What one block keeps in shared memory beside its stages.
template <typename Ring>
struct BulkState {
  SliceList lists[2];
  uint64_t list_barriers[2];
  uint64_t barriers[Ring::kRing.stages];
  Chunk chunks[Ring::kRing.stages];
};

template <bool kLists, typename Ring>
class BulkPipeline {
 public:
  __device__ BulkPipeline(const PullArgs& args, char* stages, BulkState<Ring>& state)
      : args_(args),
        state_(state),
        fetcher_(args.lists, state.lists, state.list_barriers),
        protocol_(args),
        stages_(stages) {}

  __device__ void run() {
    for (uint64_t& barrier : state_.barriers) init_barrier(barrier);
    for (uint64_t& barrier : state_.list_barriers) init_barrier(barrier);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    protocol_.enter();
    while (true) {
      // Loads lead stores by at most the stages that no store still reads from.
      while (produced_ - consumed_ < kStages - kBulkStoresInFlight && has_bytes()) load_next();
      if (produced_ != consumed_) {
        store_next();
        continue;
      }
      drain();
      if (taken_ == Take::kOver) break;
      protocol_.rest();
    }
    protocol_.leave();
  }

 private:
  static constexpr uint32_t kStages = Ring::kRing.stages;
  static constexpr uint32_t kStageBytes = Ring::kRing.stage_bytes;

  __device__ static void init_barrier(uint64_t& barrier) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&barrier)));
  }

  // Bytes are at hand: of the current piece, of the slice's next piece, or of the next slice.
  __device__ bool has_bytes() {
    while (left_bytes_ == 0) {
      if (kLists && piece_ < piece_count_) {
        const SlicePiece& piece = list_->pieces[piece_++];
        left_bytes_ = piece.size_bytes;
        source_ = reinterpret_cast<const char*>(piece.source);
        destination_ = reinterpret_cast<char*>(piece.destination);
      } else if (!take_slice()) {
        return false;
      }
    }
    return true;
  }

  __device__ bool take_slice() {
    if (taken_ == Take::kOver) return false;
    uint32_t number = 0;
    taken_ = protocol_.take(number, fetcher_);
    if (taken_ != Take::kSlice) return false;
    if (kLists) {
      list_ = &fetcher_.read();
      piece_ = 0;
      piece_count_ = list_->piece_count;
      protocol_.count(list_->size_bytes);
      return true;
    }
    const Slice slice = slice_bounds(args_, number);
    source_ = reinterpret_cast<const char*>(args_.source) + slice.offset;
    destination_ = reinterpret_cast<char*>(args_.destination) + slice.offset;
    left_bytes_ = static_cast<uint32_t>(slice.size_bytes);
    protocol_.count(left_bytes_);
    return true;
  }

  __device__ void load_next() {
    const uint32_t stage = produced_++ % kStages;
    const uint32_t head = (16 - (reinterpret_cast<uint64_t>(destination_) & 15)) & 15;
    uint32_t size = kStageBytes;
    if (head != 0 || left_bytes_ < 16) {  // a ragged end of a segment: copied here and now
      size = head != 0 && head < left_bytes_ ? head : left_bytes_;
      for (uint32_t i = 0; i < size; ++i) destination_[i] = source_[i];
      state_.chunks[stage] = {destination_, 0};
    } else {
      if (left_bytes_ < size) size = left_bytes_ & ~15u;
      bulk_load(stage_address(stage), source_, size, shared_address(&state_.barriers[stage]));
      state_.chunks[stage] = {destination_, size};
    }
    source_ += size;
    destination_ += size;
    left_bytes_ -= size;
  }

  __device__ void store_next() {
    const uint32_t stage = consumed_++ % kStages;
    const Chunk chunk = state_.chunks[stage];
    if (chunk.size_bytes != 0) {
      wait_loaded(shared_address(&state_.barriers[stage]), (phases_ >> stage) & 1);
      phases_ ^= 1u << stage;
      asm volatile(
          "cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(chunk.destination),
          "r"(stage_address(stage)), "r"(chunk.size_bytes)
          : "memory");
    }
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    // The stage that the next load takes is one whose store has finished reading.
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kBulkStoresInFlight) : "memory");
  }

  __device__ void drain() {
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    protocol_.land();
  }

  __device__ uint32_t stage_address(uint32_t stage) const {
    return shared_address(stages_) + stage * kStageBytes;
  }

  const PullArgs& args_;
  BulkState<Ring>& state_;
  ListFetcher fetcher_;
  PullProtocol<kLists> protocol_;
  char* stages_;
  Take taken_ = Take::kSlice;
  const char* source_ = nullptr;  // the next byte to load, and where it goes
  char* destination_ = nullptr;
  uint32_t left_bytes_ = 0;  // of the piece at hand
  const SliceList* list_ = nullptr;
  uint32_t piece_ = 0;        // the next piece of the list
  uint32_t piece_count_ = 0;  // of the list; a contiguous copy has none
  uint32_t produced_ = 0;     // chunks whose load has started
  uint32_t consumed_ = 0;     // chunks whose store has started
  uint32_t phases_ = 0;       // parity that each stage's barrier completes next
};

template <typename Ring>
__device__ inline void pull_bulk(const PullArgs& args) {
  extern __shared__ __align__(128) char stages[];
  __shared__ BulkState<Ring> state;
  if (threadIdx.x != 0) return;
  if (args.lists != 0)
    BulkPipeline<true, Ring>(args, stages, state).run();
  else
    BulkPipeline<false, Ring>(args, stages, state).run();
}

#endif

}  // namespace braid::cuda
