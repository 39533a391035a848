// What the driver knows of an address, in one question, whichever end of a copy it turns out to be.
// Allocates nothing; safe from any thread.
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
    kPlain,   ///< cuMemAlloc: who has peer access to `context` may touch it
    kPooled,  ///< stream-ordered: access is granted for the whole pool
    kMapped,  ///< virtual memory management: access is granted for each mapping
  } kind = Kind::kOther;
  bool is_device = false;       ///< device memory that is not managed
  CUcontext context = nullptr;  ///< of plain memory
  CUmemoryPool pool = nullptr;  ///< of pooled memory
  int gpu = -1;                 ///< CUDA ordinal
  Extent extent;                ///< of mapped memory: the mapping, whatever was reserved around it
};

struct HostFacts {
  bool is_known = false;   ///< to CUDA; pageable memory is not
  bool is_usable = false;  ///< pinned, and every GPU reaches it at its own address
  Extent extent;
};

/// As a device end, and as a host end.
struct PointerFacts {
  unsigned memory_type = 0;  ///< CUmemorytype; 0: pageable memory
  DeviceFacts device;
  HostFacts host;
};

/// Mapped device memory takes two more questions.
PointerFacts pointer_facts(const cuda::Driver& driver, CUdeviceptr address);

/// Not pageable memory. Cheaper than all facts: every copy of pinned memory too small to gain is
/// asked about.
bool is_known(const cuda::Driver& driver, CUdeviceptr address);

/// The current context's GPU may not write there: host memory registered as read-only. A question
/// of its own, which only copies to the host need an answer to.
bool is_read_only(const cuda::Driver& driver, CUdeviceptr address);

}  // namespace braid::multipath
