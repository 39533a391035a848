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

/// One slot of the ring: where its bytes go. Size 0: copied already, nothing to store.
struct Chunk {
  char* destination;
  uint32_t size_bytes;
};

class BulkPipeline {
 public:
  __device__ BulkPipeline(const PullArgs& args, char* stages, uint64_t* barriers, Chunk* chunks)
      : args_(args), protocol_(args), stages_(stages), barriers_(barriers), chunks_(chunks) {}

  __device__ void run() {
    for (uint32_t i = 0; i < kBulkStages; ++i)
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&barriers_[i])));
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    protocol_.enter();
    while (true) {
      // Loads lead stores by at most the stages that no store still reads from.
      while (produced_ - consumed_ < kBulkStages - kBulkStoresInFlight && has_bytes()) load_next();
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
  // Bytes of a slice are at hand, of the current one or of the next.
  __device__ bool has_bytes() {
    if (offset_ < end_) return true;
    if (taken_ == Take::kOver) return false;
    Slice slice;
    taken_ = protocol_.take(slice);
    if (taken_ != Take::kSlice) return false;
    offset_ = slice.offset;
    end_ = slice.offset + slice.size_bytes;
    return true;
  }

  __device__ void load_next() {
    const uint32_t stage = produced_++ % kBulkStages;
    char* destination = reinterpret_cast<char*>(args_.destination) + offset_;
    const char* source = reinterpret_cast<const char*>(args_.source) + offset_;
    const uint64_t rest = end_ - offset_;
    const uint32_t head = (16 - (reinterpret_cast<uint64_t>(destination) & 15)) & 15;
    uint32_t size = kBulkStageBytes;
    if (head != 0 || rest < 16) {  // a ragged end of the whole transfer: copied here and now
      size = head != 0 && head < rest ? head : static_cast<uint32_t>(rest);
      for (uint32_t i = 0; i < size; ++i) destination[i] = source[i];
      chunks_[stage] = {destination, 0};
    } else {
      if (rest < size) size = static_cast<uint32_t>(rest) & ~15u;
      start_load(stage, source, size);
      chunks_[stage] = {destination, size};
    }
    offset_ += size;
  }

  __device__ void start_load(uint32_t stage, const char* source, uint32_t size_bytes) {
    const uint32_t barrier = shared_address(&barriers_[stage]);
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
                 "r"(size_bytes)
                 : "memory");
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(stage_address(stage)),
        "l"(source), "r"(size_bytes), "r"(barrier)
        : "memory");
  }

  __device__ void store_next() {
    const uint32_t stage = consumed_++ % kBulkStages;
    const Chunk chunk = chunks_[stage];
    if (chunk.size_bytes != 0) {
      wait_loaded(stage);
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

  __device__ void wait_loaded(uint32_t stage) {
    const uint32_t barrier = shared_address(&barriers_[stage]);
    const uint32_t parity = (phases_ >> stage) & 1;
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
    phases_ ^= 1u << stage;
  }

  __device__ uint32_t stage_address(uint32_t stage) const {
    return shared_address(stages_) + stage * kBulkStageBytes;
  }

  const PullArgs& args_;
  PullProtocol protocol_;
  char* stages_;
  uint64_t* barriers_;
  Chunk* chunks_;
  Take taken_ = Take::kSlice;
  uint64_t offset_ = 0;  // of the slice at hand: the next byte to load
  uint64_t end_ = 0;
  uint32_t produced_ = 0;  // chunks whose load has started
  uint32_t consumed_ = 0;  // chunks whose store has started
  uint32_t phases_ = 0;    // parity that each stage's barrier completes next
};

__device__ inline void pull_bulk(const PullArgs& args) {
  extern __shared__ __align__(128) char stages[];
  __shared__ uint64_t barriers[kBulkStages];
  __shared__ Chunk chunks[kBulkStages];
  if (threadIdx.x != 0) return;
  BulkPipeline(args, stages, barriers, chunks).run();
}

#endif

}  // namespace braid::cuda
