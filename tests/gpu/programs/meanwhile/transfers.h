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

using Copy = std::function<void(const Scene&)>;

/// A copy to the GPU from memory that holds numbers.
inline Action upward(const Scene& scene, unsigned char* from, const Copy& copy, const char* what) {
  number(from, scene.turn);
  MUST(cudaMemset(scene.device, 0, kScratchBytes));
  return {[=] { copy(scene); }, [=] { expect_numbers_on_gpu(scene.device, scene.turn, what); }};
}

/// The same back.
inline Action downward(const Scene& scene, unsigned char* to, const Copy& copy, const char* what) {
  number(to, scene.turn);
  MUST(cudaMemcpy(scene.device, to, kScratchBytes, cudaMemcpyHostToDevice));
  std::memset(to, 0, kScratchBytes);
  return {[=] { copy(scene); }, [=] { expect_numbers(to, scene.turn, what); }};
}

/// What a call names as the host's end of a copy: Scene::pinned or Scene::pageable.
using HostMemory = unsigned char* Scene::*;

/// By a call that returns when the copy has ended, or by one that enqueues it.
enum class Form { kSynchronous, kAsynchronous };

inline void copy_whole(const Scene& scene, void* to, const void* from, cudaMemcpyKind kind,
                       Form form) {
  if (form == Form::kSynchronous) {
    MUST(cudaMemcpy(to, from, kScratchBytes, kind));
    return;
  }
  MUST(cudaMemcpyAsync(to, from, kScratchBytes, kind, scene.own));
  MUST(cudaStreamSynchronize(scene.own));
}

inline Operation whole_up(const char* name, HostMemory host, Form form) {
  const Copy copy = [=](const Scene& s) {
    copy_whole(s, s.device, s.*host, cudaMemcpyHostToDevice, form);
  };
  return {name, true, [=](const Scene& scene) { return upward(scene, scene.*host, copy, name); }};
}

inline Operation whole_down(const char* name, HostMemory host, Form form) {
  const Copy copy = [=](const Scene& s) {
    copy_whole(s, s.*host, s.device, cudaMemcpyDeviceToHost, form);
  };
  return {name, true, [=](const Scene& scene) { return downward(scene, scene.*host, copy, name); }};
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

inline void copy_blocks(const Scene& s) {
  Batch<void*> batch;
  for (size_t at = 0; at < kScratchBytes; at += kBlockBytes)
    batch.add(s.device + at, s.pinned + at, kBlockBytes);
  copy_batch(batch, s.own);
  MUST(cudaStreamSynchronize(s.own));
}

inline Action batch_up(const Scene& scene) {
  return upward(scene, scene.pinned, copy_blocks, "a batch");
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

}  // namespace meanwhile
