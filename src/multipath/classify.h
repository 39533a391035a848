// What the addresses of a copy are, asked of the driver. A contiguous copy takes under a quarter of
// a microsecond. Of a batch, each allocation costs a question, however many segments lie in it
// (extent_cache.h). Where access is granted GPU by GPU, each mapping and each pool costs a
// question more for every relay. Allocates nothing.
#pragma once

#include <optional>

#include "cuda/driver.h"
#include "multipath/access.h"
#include "multipath/pointer_facts.h"
#include "multipath/transfer.h"

namespace braid::multipath {

struct Classification {
  Verdict verdict = Verdict::kAccelerated;  ///< kAccelerated: both ends can be carried
  CUcontext context = nullptr;  ///< that plain device memory belongs to; null: no such memory
  int gpu = -1;                 ///< that the device memory lies on, its CUDA ordinal
  GpuSet allowed = kEveryGpu;   ///< may touch all of the device memory; of `relays` and `gpu`
  bool is_plain = false;  ///< some of it is cuMemAlloc's, which relays' copy engines do not reach
};

/// The two ends of a copy between unified addresses, and what the driver said of them.
struct CopyPointers {
  Direction direction = Direction::kHostToDevice;
  CUdeviceptr device_address = 0;
  CUdeviceptr host_address = 0;
  DeviceFacts device;
  HostFacts host;
};

/// Nothing when the copy is not between host memory and a GPU.
std::optional<CopyPointers> query_pointers(const cuda::Driver& driver, CUdeviceptr to,
                                           CUdeviceptr from);

/// kPageable when a host end does not begin in pinned memory. kNotLinear when it leaves the pinned
/// allocation or registration that it begins in; when a device end is neither wholly inside one
/// allocation of plain device memory, nor of pools or mappings that its own GPU may touch (managed
/// and imported memory are neither); and when a host end that is copied to is registered as
/// read-only. All device ends must lie on one GPU, and the plain ones in one context
/// (kForeignContext).
Classification classify(const cuda::Driver& driver, const Batch& batch, GpuSet relays);

/// Host memory that begins pageable at one end, and at the other device memory of any kind but
/// managed: the driver, and not braid, decides who may reach it.
bool is_pageable_copy(const cuda::Driver& driver, const Segment& segment);

}  // namespace braid::multipath
