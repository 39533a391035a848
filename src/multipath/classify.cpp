#include "multipath/classify.h"

#include <array>
#include <cstdint>

namespace braid::multipath {
namespace {

struct Pointer {
  unsigned memory_type = 0;
  CUcontext context = nullptr;
  unsigned is_managed = 0;
  CUdeviceptr device_address = 0;
  CUdeviceptr range_start = 0;
  size_t range_bytes = 0;
  CUmemoryPool pool = nullptr;
  unsigned is_ipc_capable = 0;
};

bool query(const cuda::Driver& driver, CUdeviceptr address, Pointer& pointer) {
  CUpointer_attribute attributes[] = {
      CU_POINTER_ATTRIBUTE_MEMORY_TYPE,      CU_POINTER_ATTRIBUTE_CONTEXT,
      CU_POINTER_ATTRIBUTE_IS_MANAGED,       CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
      CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
      CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,   CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE};
  void* values[] = {&pointer.memory_type,    &pointer.context,       &pointer.is_managed,
                    &pointer.device_address, &pointer.range_start,   &pointer.range_bytes,
                    &pointer.pool,           &pointer.is_ipc_capable};
  return driver.cuPointerGetAttributes(8, attributes, values, address) == CUDA_SUCCESS;
}

bool holds(const Pointer& pointer, CUdeviceptr address, uint64_t size_bytes) {
  const uint64_t before = address - pointer.range_start;
  return address >= pointer.range_start && before <= pointer.range_bytes &&
         size_bytes <= pointer.range_bytes - before;
}

Verdict judge_device(const Pointer& pointer) {
  const bool is_plain = pointer.memory_type == CU_MEMORYTYPE_DEVICE && pointer.context != nullptr &&
                        pointer.is_managed == 0 && pointer.pool == nullptr &&
                        pointer.is_ipc_capable != 0;
  return is_plain ? Verdict::kAccelerated : Verdict::kNotLinear;
}

// Kernels on every GPU use the host address itself: unified addressing, and no separate mapping.
Verdict judge_host(const Pointer& pointer, CUdeviceptr address) {
  if (pointer.memory_type == 0) return Verdict::kPageable;
  const bool is_usable = pointer.memory_type == CU_MEMORYTYPE_HOST && pointer.is_managed == 0 &&
                         pointer.device_address == address;
  return is_usable ? Verdict::kAccelerated : Verdict::kNotLinear;
}

// The allocations that the segments so far lie in. A KV cache has two for each layer, or a few in
// all; with more than these in turn, each segment costs a question to the driver.
class Allocations {
 public:
  const Pointer* find(CUdeviceptr address, uint64_t size_bytes) {
    for (size_t tried = 0; tried < count_; ++tried) {
      const Pointer& known = known_[last_];
      if (holds(known, address, size_bytes)) return &known;
      last_ = last_ + 1 < count_ ? last_ + 1 : 0;  // segments often take turns
    }
    return nullptr;
  }

  void add(const Pointer& pointer) {
    last_ = count_ < known_.size() ? count_++ : (oldest_++ % known_.size());
    known_[last_] = pointer;
  }

 private:
  std::array<Pointer, 16> known_;
  size_t count_ = 0;
  size_t last_ = 0;
  size_t oldest_ = 0;
};

class Classifier {
 public:
  explicit Classifier(const cuda::Driver& driver) : driver_(driver) {}

  Verdict add(const Segment& segment) {
    const Verdict device = add_device(segment);
    return device == Verdict::kAccelerated ? add_host(segment) : device;
  }

  CUcontext context() const { return context_; }

 private:
  Verdict add_device(const Segment& segment) {
    if (devices_.find(segment.device, segment.size_bytes) != nullptr) return Verdict::kAccelerated;
    Pointer pointer;
    if (!query(driver_, segment.device, pointer)) return Verdict::kNotLinear;
    const Verdict verdict = judge_device(pointer);
    if (verdict != Verdict::kAccelerated) return verdict;
    if (!holds(pointer, segment.device, segment.size_bytes)) return Verdict::kNotLinear;
    if (context_ != nullptr && pointer.context != context_) return Verdict::kForeignContext;
    context_ = pointer.context;
    devices_.add(pointer);
    return Verdict::kAccelerated;
  }

  Verdict add_host(const Segment& segment) {
    const auto address = reinterpret_cast<CUdeviceptr>(segment.host);
    if (hosts_.find(address, segment.size_bytes) != nullptr) return Verdict::kAccelerated;
    Pointer pointer;
    if (!query(driver_, address, pointer)) return Verdict::kPageable;
    const Verdict verdict = judge_host(pointer, address);
    if (verdict != Verdict::kAccelerated) return verdict;
    if (!holds(pointer, address, segment.size_bytes)) return Verdict::kPageable;
    hosts_.add(pointer);
    return Verdict::kAccelerated;
  }

  const cuda::Driver& driver_;
  CUcontext context_ = nullptr;
  Allocations devices_;
  Allocations hosts_;
};

}  // namespace

Classification classify(const cuda::Driver& driver, const Batch& batch) {
  Classifier classifier(driver);
  for (const Segment& segment : batch.segments)
    if (const Verdict verdict = classifier.add(segment); verdict != Verdict::kAccelerated)
      return {verdict, nullptr};
  return {Verdict::kAccelerated, classifier.context()};
}

bool is_pageable_copy(const cuda::Driver& driver, const Transfer& transfer) {
  Pointer host;
  const auto host_address = reinterpret_cast<CUdeviceptr>(transfer.host);
  const bool is_known = query(driver, host_address, host) && host.memory_type != 0;
  if (is_known && (host.memory_type != CU_MEMORYTYPE_HOST || host.is_managed != 0 ||
                   holds(host, host_address, transfer.size_bytes)))
    return false;

  Pointer device;
  if (!query(driver, transfer.device, device) || device.memory_type != CU_MEMORYTYPE_DEVICE ||
      device.is_managed != 0)
    return false;
  if (holds(device, transfer.device, transfer.size_bytes)) return true;
  // Mapped memory may be put together from several pieces; a plain allocation ends where it ends.
  Pointer last;
  return device.is_ipc_capable == 0 &&
         query(driver, transfer.device + transfer.size_bytes - 1, last) &&
         last.memory_type == CU_MEMORYTYPE_DEVICE && last.is_ipc_capable == 0;
}

}  // namespace braid::multipath
