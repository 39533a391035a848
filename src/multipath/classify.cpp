#include "multipath/classify.h"

#include <cstdint>

#include "multipath/extent_cache.h"
#include "multipath/pointer_facts.h"

namespace braid::multipath {
namespace {

class Classifier {
 public:
  /// `pointers`: what is known of the first addresses, or null.
  Classifier(const cuda::Driver& driver, Direction direction, GpuSet relays,
             const CopyPointers* pointers)
      : driver_(driver), direction_(direction), relays_(relays), pointers_(pointers) {}

  Verdict add(const Segment& segment) {
    const Verdict device = add_device(segment.device, segment.size_bytes);
    return device == Verdict::kAccelerated ? add_host(segment.host, segment.size_bytes) : device;
  }

  Verdict add_device(CUdeviceptr address, uint64_t size_bytes) {
    const auto judge = [this](CUdeviceptr at, Extent& extent) {
      const bool is_known = pointers_ != nullptr && pointers_->device_address == at;
      const DeviceFacts facts = is_known ? pointers_->device : pointer_facts(driver_, at).device;
      extent = facts.extent;
      return judge_device(facts, at);
    };
    const auto may_leave = [](const Extent& extent) { return extent.is_mapping; };
    return walk(devices_, address, size_bytes, judge, may_leave);
  }

  Verdict add_host(const void* memory, uint64_t size_bytes) {
    const auto judge = [this](CUdeviceptr at, Extent& extent) {
      const bool is_known = pointers_ != nullptr && pointers_->host_address == at;
      const HostFacts facts = is_known ? pointers_->host : pointer_facts(driver_, at).host;
      extent = facts.extent;
      if (!facts.is_known) return Verdict::kPageable;
      const bool may_write = direction_ == Direction::kHostToDevice || !is_read_only(driver_, at);
      return facts.is_usable && may_write ? Verdict::kAccelerated : Verdict::kNotLinear;
    };
    const auto may_leave = [](const Extent&) { return false; };
    return walk(hosts_, reinterpret_cast<CUdeviceptr>(memory), size_bytes, judge, may_leave);
  }

  Classification result() const { return {Verdict::kAccelerated, context_, gpu_, allowed_}; }

 private:
  // Every byte of the range, one piece of memory after the other: mappings lie side by side in what
  // was reserved. A copy that leaves an allocation, or a registration even for one that touches it,
  // is for the driver to refuse (CUDA_ERROR_INVALID_VALUE on H200, driver 580).
  template <typename Judge, typename MayLeave>
  static Verdict walk(ExtentCache& known, CUdeviceptr address, uint64_t size_bytes,
                      const Judge& judge, const MayLeave& may_leave) {
    const CUdeviceptr end = address + size_bytes;
    if (end < address) return Verdict::kNotLinear;
    while (address < end) {
      const Extent* found = known.find(address);
      Extent asked;
      if (found == nullptr) {
        const Verdict verdict = judge(address, asked);
        if (verdict != Verdict::kAccelerated) return verdict;
        if (!asked.holds(address, 1)) return Verdict::kNotLinear;
        found = &known.add(asked);
      }
      if (found->end() < end && !may_leave(*found)) return Verdict::kNotLinear;
      address = found->end();
    }
    return Verdict::kAccelerated;
  }

  Verdict judge_device(const DeviceFacts& facts, CUdeviceptr address) {
    if (facts.kind == DeviceFacts::Kind::kOther) return Verdict::kNotLinear;
    if (gpu_ >= 0 && facts.gpu != gpu_) return Verdict::kForeignContext;
    gpu_ = facts.gpu;
    if (facts.kind != DeviceFacts::Kind::kPlain) return judge_access(facts, address);
    if (context_ != nullptr && facts.context != context_) return Verdict::kForeignContext;
    context_ = facts.context;
    return Verdict::kAccelerated;
  }

  // Access to a pool is access to all that is allocated from it. What its own GPU may not do either
  // is for the driver to refuse.
  Verdict judge_access(const DeviceFacts& facts, CUdeviceptr address) {
    if (facts.pool != nullptr && facts.pool == pool_) return Verdict::kAccelerated;
    pool_ = facts.pool;
    const GpuSet own = gpu_bit(facts.gpu);
    const GpuSet allowed =
        gpus_with_access(driver_, facts.pool, address, direction_, allowed_ & (relays_ | own));
    allowed_ = allowed;
    return (allowed & own) != 0 ? Verdict::kAccelerated : Verdict::kNotLinear;
  }

  const cuda::Driver& driver_;
  const Direction direction_;
  const GpuSet relays_;
  const CopyPointers* const pointers_;
  CUcontext context_ = nullptr;
  CUmemoryPool pool_ = nullptr;  // that was asked about last
  int gpu_ = -1;
  GpuSet allowed_ = kEveryGpu;
  ExtentCache devices_;
  ExtentCache hosts_;
};

}  // namespace

std::optional<CopyPointers> query_pointers(const cuda::Driver& driver, CUdeviceptr to,
                                           CUdeviceptr from) {
  const PointerFacts target = pointer_facts(driver, to);
  const PointerFacts source = pointer_facts(driver, from);
  const bool to_device = target.memory_type == CU_MEMORYTYPE_DEVICE;
  if (to_device == (source.memory_type == CU_MEMORYTYPE_DEVICE)) return std::nullopt;
  if (to_device)
    return CopyPointers{Direction::kHostToDevice, to, from, target.device, source.host};
  return CopyPointers{Direction::kDeviceToHost, from, to, source.device, target.host};
}

Classification classify(const cuda::Driver& driver, const Batch& batch, GpuSet relays) {
  Classifier classifier(driver, batch.direction, relays, batch.pointers);
  for (const Segment& segment : batch.segments())
    if (const Verdict verdict = classifier.add(segment); verdict != Verdict::kAccelerated)
      return {verdict};
  return classifier.result();
}

bool is_pageable_copy(const cuda::Driver& driver, const Segment& segment) {
  if (is_known(driver, reinterpret_cast<CUdeviceptr>(segment.host))) return false;
  const DeviceFacts first = pointer_facts(driver, segment.device).device;
  if (!first.is_device) return false;
  if (first.extent.holds(segment.device, segment.size_bytes)) return true;
  // Mapped memory may be put together from several pieces; a plain allocation ends where it ends.
  return first.kind == DeviceFacts::Kind::kMapped &&
         gpu_of_mappings(driver, segment.device, segment.size_bytes) >= 0;
}

}  // namespace braid::multipath
