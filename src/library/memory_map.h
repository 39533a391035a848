// What addresses are, asked of the driver once for each allocation that a call names: a batch has
// thousands of entries in few allocations.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda/driver.h"

namespace braid::library {

struct Memory {
  bool is_device = false;
  bool is_known = false;        ///< to CUDA; pageable host memory is not
  bool is_managed = false;      ///< may be on either side
  CUcontext context = nullptr;  ///< of device memory; null for pools and mapped ranges
  int gpu = -1;                 ///< of device memory, its CUDA ordinal
};

/// Good for one call: memory may be freed between two. Not for several threads.
class MemoryMap {
 public:
  Memory find(const cuda::Driver& driver, uint64_t address);
  void clear() { ranges_.clear(); }

 private:
  struct Range {
    uint64_t begin;
    uint64_t end;
    Memory memory;
  };
  std::vector<Range> ranges_;  // by their ends, which do not overlap
};

}  // namespace braid::library
