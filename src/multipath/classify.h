// Asks the driver what memory the addresses of a copy name. A contiguous copy takes under a quarter
// of a microsecond. A batch costs one question for each allocation, however many segments lie in it
// (extent_cache.h). Where access is granted GPU by GPU, each mapping and each pool costs one more
// question for every relay. Allocates nothing.
#pragma once

#include <optional>

#include "cuda/driver.h"
#include "multipath/access.h"
#include "multipath/pointer_facts.h"
#include "multipath/transfer.h"

namespace braid::multipath {

struct Classification {
  Verdict verdict = Verdict::kAccelerated;  ///< kAccelerated: both ends can be carried
  CUcontext context = nullptr;  ///< the context of plain device memory; null: there is none
  int gpu = -1;                 ///< the GPU of the device memory, a CUDA ordinal
  GpuSet allowed = kEveryGpu;   ///< those of `relays` and `gpu` that may touch all device memory

  /// Some of it is cuMemAlloc's, out of reach of relays' copy engines.
  bool is_plain() const { return context != nullptr; }
};

/// The two ends of a copy between unified addresses, with the driver's answers.
struct CopyPointers {
  Direction direction = Direction::kHostToDevice;
  CUdeviceptr device_address = 0;
  CUdeviceptr host_address = 0;
  DeviceFacts device;
  HostFacts host;
};

/// Empty if the copy is not between host memory and a GPU.
std::optional<CopyPointers> query_pointers(const cuda::Driver& driver, CUdeviceptr to,
                                           CUdeviceptr from);

/// The verdicts:
/// - kPageable: a host end does not begin in pinned memory.
/// - kNotLinear: a host end leaves the pinned allocation or registration in which it begins. Or a
///   host end that is copied to is registered as read-only. Or a device end is neither wholly in
///   one allocation of plain device memory, nor in pools or mappings that its own GPU may touch.
///   (Managed and imported memory are neither.)
/// - kForeignContext: device ends lie on several GPUs, or plain ones in several contexts.
Classification classify(const cuda::Driver& driver, const Batch& batch, GpuSet relays);

/// True if one end is host memory that begins pageable, and the other device memory of any kind
/// except managed. The driver, not braid, decides which GPUs may reach that memory.
bool is_pageable_copy(const cuda::Driver& driver, const Segment& segment);

}  // namespace braid::multipath
