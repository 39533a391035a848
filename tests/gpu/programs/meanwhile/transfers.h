// Copies and fills of the program's own, beside those that are under way.
#pragma once

#include "scene.h"

namespace meanwhile {

constexpr size_t kBlockBytes = size_t{64} << 10;

inline void number(unsigned char* memory, int turn) {
  Pattern(1000 + static_cast<uint64_t>(turn)).fill(memory, kScratchBytes);
}

inline void expect_numbers(const unsigned char* memory, int turn, const char* what) {
  Pattern(1000 + static_cast<uint64_t>(turn)).check(memory, kScratchBytes, what);
}

inline void expect_numbers_on_gpu(const unsigned char* memory, int turn, const char* what) {
  check_device(memory, kScratchBytes, Pattern(1000 + static_cast<uint64_t>(turn)), what);
}

using Copy = void (*)(const Scene&);

/// A copy to the GPU from memory that holds numbers.
inline Action upward(const Scene& scene, unsigned char* from, Copy copy, const char* what) {
  number(from, scene.turn);
  MUST(cudaMemset(scene.device, 0, kScratchBytes));
  return {[=] { copy(scene); }, [=] { expect_numbers_on_gpu(scene.device, scene.turn, what); }};
}

/// The same back.
inline Action downward(const Scene& scene, unsigned char* to, Copy copy, const char* what) {
  number(to, scene.turn);
  MUST(cudaMemcpy(scene.device, to, kScratchBytes, cudaMemcpyHostToDevice));
  std::memset(to, 0, kScratchBytes);
  return {[=] { copy(scene); }, [=] { expect_numbers(to, scene.turn, what); }};
}

inline Action pageable_up(const Scene& scene) {
  return upward(
      scene, scene.pageable,
      [](const Scene& s) {
        MUST(cudaMemcpy(s.device, s.pageable, kScratchBytes, cudaMemcpyHostToDevice));
      },
      "pageable memory up");
}

inline Action pageable_down(const Scene& scene) {
  return downward(
      scene, scene.pageable,
      [](const Scene& s) {
        MUST(cudaMemcpy(s.pageable, s.device, kScratchBytes, cudaMemcpyDeviceToHost));
      },
      "pageable memory down");
}

inline Action pageable_up_async(const Scene& scene) {
  return upward(
      scene, scene.pageable,
      [](const Scene& s) {
        MUST(cudaMemcpyAsync(s.device, s.pageable, kScratchBytes, cudaMemcpyHostToDevice, s.own));
        MUST(cudaStreamSynchronize(s.own));
      },
      "pageable memory up, asynchronously");
}

inline Action pinned_up(const Scene& scene) {
  return upward(
      scene, scene.pinned,
      [](const Scene& s) {
        MUST(cudaMemcpy(s.device, s.pinned, kScratchBytes, cudaMemcpyHostToDevice));
      },
      "pinned memory up");
}

inline Action pinned_down(const Scene& scene) {
  return downward(
      scene, scene.pinned,
      [](const Scene& s) {
        MUST(cudaMemcpy(s.pinned, s.device, kScratchBytes, cudaMemcpyDeviceToHost));
      },
      "pinned memory down");
}

inline Action pinned_up_async(const Scene& scene) {
  return upward(
      scene, scene.pinned,
      [](const Scene& s) {
        MUST(cudaMemcpyAsync(s.device, s.pinned, kScratchBytes, cudaMemcpyHostToDevice, s.own));
        MUST(cudaStreamSynchronize(s.own));
      },
      "pinned memory up, asynchronously");
}

inline Action pinned_down_async(const Scene& scene) {
  return downward(
      scene, scene.pinned,
      [](const Scene& s) {
        MUST(cudaMemcpyAsync(s.pinned, s.device, kScratchBytes, cudaMemcpyDeviceToHost, s.own));
        MUST(cudaStreamSynchronize(s.own));
      },
      "pinned memory down, asynchronously");
}

inline Action small_up(const Scene& scene) {
  return upward(
      scene, scene.pinned,
      [](const Scene& s) {
        for (size_t at = 0; at < kScratchBytes; at += kPieceBytes)
          MUST(cudaMemcpyAsync(s.device + at, s.pinned + at, kPieceBytes, cudaMemcpyHostToDevice,
                               s.own));
        MUST(cudaStreamSynchronize(s.own));
      },
      "small copies");
}

inline Action rows_up(const Scene& scene) {
  return upward(
      scene, scene.pinned,
      [](const Scene& s) {
        MUST(cudaMemcpy2DAsync(s.device, kBlockBytes, s.pinned, kBlockBytes, kBlockBytes,
                               kScratchBytes / kBlockBytes, cudaMemcpyHostToDevice, s.own));
        MUST(cudaStreamSynchronize(s.own));
      },
      "rows");
}

inline void copy_batch(const Scene& s) {
  std::vector<void*> to, from;
  std::vector<size_t> sizes(kScratchBytes / kBlockBytes, kBlockBytes);
  for (size_t at = 0; at < kScratchBytes; at += kBlockBytes) {
    to.push_back(s.device + at);
    from.push_back(s.pinned + at);
  }
  cudaMemcpyAttributes attributes{};
  attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  size_t begins_at = 0;
#if CUDART_VERSION >= 13000
  MUST(cudaMemcpyBatchAsync(to.data(), from.data(), sizes.data(), sizes.size(), &attributes,
                            &begins_at, 1, s.own));
#else
  size_t failed = 0;
  MUST(cudaMemcpyBatchAsync(to.data(), from.data(), sizes.data(), sizes.size(), &attributes,
                            &begins_at, 1, &failed, s.own));
#endif
  MUST(cudaStreamSynchronize(s.own));
}

inline Action batch_up(const Scene& scene) {
  return upward(scene, scene.pinned, copy_batch, "a batch");
}

inline Action peer_copy(const Scene& scene) {
  if (scene.other_gpu < 0) return {[] { remark = "one GPU"; }};
  number(scene.pinned, scene.turn);
  MUST(cudaMemcpy(scene.there, scene.pinned, kScratchBytes, cudaMemcpyDefault));
  return {[=] {
            MUST(cudaMemcpyPeerAsync(scene.device, scene.gpu, scene.there, scene.other_gpu,
                                     kScratchBytes, scene.own));
            MUST(cudaStreamSynchronize(scene.own));
          },
          [=] { expect_numbers_on_gpu(scene.device, scene.turn, "a peer copy"); }};
}

inline Action device_copy(const Scene& scene) {
  constexpr size_t kHalf = kScratchBytes / 2;
  MUST(cudaMemset(scene.device, 7, kHalf));
  return {[=] {
            MUST(cudaMemcpyAsync(scene.device + kHalf, scene.device, kHalf,
                                 cudaMemcpyDeviceToDevice, scene.own));
            MUST(cudaStreamSynchronize(scene.own));
          },
          [=] { expect_word(scene.device + kHalf, 0x07070707, "a copy on the GPU"); }};
}

inline Action fill_now(const Scene& scene) {
  return {[=] {
            MUST(cudaMemset(scene.device, 9, kScratchBytes));
            MUST(cudaMemsetAsync(scene.device, 9, kScratchBytes, scene.own));
            MUST(cudaStreamSynchronize(scene.own));
          },
          [=] { expect_word(scene.device, 0x09090909, "a fill"); }};
}

// The GPU writes managed memory, and the CPU reads it.
inline Action managed_touch(const Scene& scene) {
  void* memory = nullptr;
  MUST(cudaMallocManaged(&memory, kScratchBytes));
  std::memset(memory, 0, kScratchBytes);
  return {[=] {
            launch_loaded(static_cast<unsigned*>(memory), scene.own);
            MUST(cudaStreamSynchronize(scene.own));
            require(*static_cast<volatile unsigned*>(memory) == 1, "managed memory");
          },
          [=] { MUST(cudaFree(memory)); }};
}

inline const std::vector<Operation> kTransfers = {
    {"cudaMemcpy.pageable.up", true, pageable_up},
    {"cudaMemcpy.pageable.down", true, pageable_down},
    {"cudaMemcpyAsync.pageable.up", true, pageable_up_async},
    {"cudaMemcpy.pinned.up", true, pinned_up},
    {"cudaMemcpy.pinned.down", true, pinned_down},
    {"cudaMemcpyAsync.pinned.up", true, pinned_up_async},
    {"cudaMemcpyAsync.pinned.down", true, pinned_down_async},
    {"cudaMemcpyAsync.small", true, small_up},
    {"cudaMemcpy2DAsync", false, rows_up},
    {"cudaMemcpyBatchAsync", true, batch_up},
    {"cudaMemcpyPeerAsync", true, peer_copy},
    {"cudaMemcpyAsync.device", true, device_copy},
    {"cudaMemset", true, fill_now},
    {"managed", true, managed_touch},
};

}  // namespace meanwhile
