// The driver's facts about an address, in one question, for either end of a copy. Allocates
// nothing; safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/driver.h"

namespace braid::multipath {

/// The piece of memory that an address lies in: an allocation, a registration, a mapping.
struct Extent {
  CUdeviceptr begin = 0;
  size_t size_bytes = 0;
  bool is_mapping = false;
  CUdeviceptr end() const { return begin + size_bytes; }
  bool holds(CUdeviceptr address, uint64_t bytes) const {
    const uint64_t before = address - begin;
    return address >= begin && before <= size_bytes && bytes <= size_bytes - before;
  }
};

struct DeviceFacts {
  enum class Kind : uint8_t {
    kOther,   ///< host or managed memory, imported by legacy IPC, or unknown
    kPlain,   ///< cuMemAlloc: GPUs with peer access to `context` may touch it
    kPooled,  ///< stream-ordered: access is granted for the whole pool
    kMapped,  ///< virtual memory management: access is granted for each mapping
  } kind = Kind::kOther;
  bool is_device = false;       ///< device memory that is not managed
  CUcontext context = nullptr;  ///< of plain memory
  CUmemoryPool pool = nullptr;  ///< of pooled memory
  int gpu = -1;                 ///< CUDA ordinal
  Extent extent;                ///< of mapped memory: the mapping, not the reservation around it
};

struct HostFacts {
  bool is_known = false;   ///< to CUDA; pageable memory is not
  bool is_usable = false;  ///< pinned, and every GPU reaches it at its own address
  Extent extent;
};

/// The facts of an address as a device end, and as a host end.
struct PointerFacts {
  unsigned memory_type = 0;  ///< CUmemorytype; 0: pageable memory
  DeviceFacts device;
  HostFacts host;
};

/// Mapped device memory costs two more questions.
PointerFacts pointer_facts(const cuda::Driver& driver, CUdeviceptr address);

/// False for pageable memory. Cheaper than all facts: asked for every copy of pinned memory that is
/// too small to gain.
bool is_known(const cuda::Driver& driver, CUdeviceptr address);

/// True if the current context's GPU may not write there: host memory registered as read-only. A
/// separate question, needed only for copies to the host.
bool is_read_only(const cuda::Driver& driver, CUdeviceptr address);

}  // namespace braid::multipath
