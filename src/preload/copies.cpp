// The linear copies. Passing through is the default: a copy is offered to the engine, and whatever
// the engine does not take goes to the driver with the program's own arguments.
//
// On a copy's path nothing allocates and nothing blocks, except that a synchronous copy waits for
// its stream, and a copy of pageable memory for its bytes, as they do natively.
#include <algorithm>
#include <optional>

#include "preload/entries.h"
#include "preload/lifecycle.h"
#include "preload/runtime.h"

namespace braid::preload {
namespace {

using multipath::Direction;
using multipath::Transfer;
using multipath::Verdict;

enum class Wait : bool { kNo, kYes };

// The program's stream as a handle that means the same whichever entry point it came through.
CUstream legacy(CUstream stream) { return stream == nullptr ? CU_STREAM_LEGACY : stream; }
CUstream per_thread(CUstream stream) { return stream == nullptr ? CU_STREAM_PER_THREAD : stream; }

Transfer to_device(CUdeviceptr to, const void* from, size_t size_bytes, CUstream stream) {
  return {Direction::kHostToDevice, const_cast<void*>(from), to, size_bytes, stream};
}

Transfer to_host(void* to, CUdeviceptr from, size_t size_bytes, CUstream stream) {
  return {Direction::kDeviceToHost, to, from, size_bytes, stream};
}

bool is_device_memory(CUdeviceptr address) {
  unsigned type = 0;
  CUpointer_attribute attribute = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
  void* values[] = {&type};
  // Host memory that CUDA does not know is no error here: its type stays 0.
  return driver()->cuPointerGetAttributes(1, &attribute, values, address) == CUDA_SUCCESS &&
         type == CU_MEMORYTYPE_DEVICE;
}

// What a copy between two unified addresses is; nothing when it is not between host and device.
std::optional<Transfer> infer(CUdeviceptr to, CUdeviceptr from, size_t size_bytes,
                              CUstream stream) {
  if (driver() == nullptr) return std::nullopt;
  const bool to_is_device = is_device_memory(to);
  if (to_is_device == is_device_memory(from)) return std::nullopt;
  if (to_is_device) return to_device(to, reinterpret_cast<const void*>(from), size_bytes, stream);
  return to_host(reinterpret_cast<void*>(to), from, size_bytes, stream);
}

Verdict offer(const Transfer& transfer) {
  if (multipath::Engine* open = engine()) return open->submit(transfer);
  // Nobody has pinned host memory yet, so this is not pinned either.
  return state() == State::kIdle ? Verdict::kPageable : Verdict::kNotReady;
}

// Reasons that do not rule out that the host memory is pageable.
bool may_be_pageable(Verdict verdict) {
  return verdict == Verdict::kPageable || verdict == Verdict::kBelowThreshold ||
         verdict == Verdict::kNoRelay || verdict == Verdict::kNotLinear;
}

// What the program hears for a copy of pageable memory; nothing when the copy is native.
std::optional<CUresult> stage(const Transfer& transfer, Wait wait) noexcept try {
  if (state() == State::kIdle) get_ready();
  multipath::Engine* open = engine();
  if (open == nullptr) return std::nullopt;
  return open->stage(transfer, wait == Wait::kYes);
} catch (...) {
  return std::nullopt;  // what has moved will be moved again
}

// `describe` gives the transfer, or nothing; it is asked only about copies large enough to gain.
template <typename Describe, typename... Arguments>
CUresult copy(HookId hook, Wait wait, CUstream stream, size_t size_bytes, Describe describe,
              Arguments... arguments) {
  auto* native = real<CUresult(Arguments...)>(hook);
  if (native == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (Inside::now()) return native(arguments...);
  const Inside inside;
  Verdict verdict = Verdict::kBelowThreshold;
  std::optional<CUresult> staged;
  if (size_bytes >= std::min(threshold_bytes(), staging_bytes())) {
    const std::optional<Transfer> transfer = describe();
    verdict = transfer ? offer(*transfer) : Verdict::kNotLinear;
    if (transfer && size_bytes >= staging_bytes() && may_be_pageable(verdict))
      staged = stage(*transfer, wait);
    if (staged) verdict = Verdict::kStaged;
  }
  statistics().add(hook, verdict, size_bytes);
  if (staged) return *staged;
  if (verdict != Verdict::kAccelerated) return native(arguments...);
  return wait == Wait::kYes ? driver()->cuStreamSynchronize(stream) : CUDA_SUCCESS;
}

CUresult copy_to_device(HookId hook, Wait wait, CUstream stream, CUdeviceptr to, const void* from,
                        size_t size_bytes) {
  return copy(
      hook, wait, stream, size_bytes,
      [&] { return std::optional(to_device(to, from, size_bytes, stream)); }, to, from, size_bytes);
}

CUresult copy_to_host(HookId hook, Wait wait, CUstream stream, void* to, CUdeviceptr from,
                      size_t size_bytes) {
  return copy(
      hook, wait, stream, size_bytes,
      [&] { return std::optional(to_host(to, from, size_bytes, stream)); }, to, from, size_bytes);
}

}  // namespace
}  // namespace braid::preload

using namespace braid::preload;

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t size_bytes) {
  return copy_to_device(k_cuMemcpyHtoD_v2, Wait::kYes, CU_STREAM_LEGACY, to, from, size_bytes);
}

CUresult cuMemcpyHtoD_v2_ptds(CUdeviceptr to, const void* from, size_t size_bytes) {
  return copy_to_device(k_cuMemcpyHtoD_v2_ptds, Wait::kYes, CU_STREAM_PER_THREAD, to, from,
                        size_bytes);
}

CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t size_bytes) {
  return copy_to_host(k_cuMemcpyDtoH_v2, Wait::kYes, CU_STREAM_LEGACY, to, from, size_bytes);
}

CUresult cuMemcpyDtoH_v2_ptds(void* to, CUdeviceptr from, size_t size_bytes) {
  return copy_to_host(k_cuMemcpyDtoH_v2_ptds, Wait::kYes, CU_STREAM_PER_THREAD, to, from,
                      size_bytes);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t size_bytes,
                              CUstream stream) {
  return copy(
      k_cuMemcpyHtoDAsync_v2, Wait::kNo, stream, size_bytes,
      [&] { return std::optional(to_device(to, from, size_bytes, legacy(stream))); }, to, from,
      size_bytes, stream);
}

CUresult cuMemcpyHtoDAsync_v2_ptsz(CUdeviceptr to, const void* from, size_t size_bytes,
                                   CUstream stream) {
  return copy(
      k_cuMemcpyHtoDAsync_v2_ptsz, Wait::kNo, stream, size_bytes,
      [&] { return std::optional(to_device(to, from, size_bytes, per_thread(stream))); }, to, from,
      size_bytes, stream);
}

CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t size_bytes, CUstream stream) {
  return copy(
      k_cuMemcpyDtoHAsync_v2, Wait::kNo, stream, size_bytes,
      [&] { return std::optional(to_host(to, from, size_bytes, legacy(stream))); }, to, from,
      size_bytes, stream);
}

CUresult cuMemcpyDtoHAsync_v2_ptsz(void* to, CUdeviceptr from, size_t size_bytes, CUstream stream) {
  return copy(
      k_cuMemcpyDtoHAsync_v2_ptsz, Wait::kNo, stream, size_bytes,
      [&] { return std::optional(to_host(to, from, size_bytes, per_thread(stream))); }, to, from,
      size_bytes, stream);
}

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t size_bytes) {
  return copy(
      k_cuMemcpy, Wait::kYes, CU_STREAM_LEGACY, size_bytes,
      [&] { return infer(to, from, size_bytes, CU_STREAM_LEGACY); }, to, from, size_bytes);
}

CUresult cuMemcpy_ptds(CUdeviceptr to, CUdeviceptr from, size_t size_bytes) {
  return copy(
      k_cuMemcpy_ptds, Wait::kYes, CU_STREAM_PER_THREAD, size_bytes,
      [&] { return infer(to, from, size_bytes, CU_STREAM_PER_THREAD); }, to, from, size_bytes);
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size_bytes, CUstream stream) {
  return copy(
      k_cuMemcpyAsync, Wait::kNo, stream, size_bytes,
      [&] { return infer(to, from, size_bytes, legacy(stream)); }, to, from, size_bytes, stream);
}

CUresult cuMemcpyAsync_ptsz(CUdeviceptr to, CUdeviceptr from, size_t size_bytes, CUstream stream) {
  return copy(
      k_cuMemcpyAsync_ptsz, Wait::kNo, stream, size_bytes,
      [&] { return infer(to, from, size_bytes, per_thread(stream)); }, to, from, size_bytes,
      stream);
}
