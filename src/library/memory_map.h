// What addresses are, asked of the driver once for each allocation that a call names: a batch has
// thousands of entries in few allocations.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cuda/driver.h"

namespace braid::library {

/// An allocation; memory that CUDA does not know is empty, and holds no address.
struct Memory {
  uint64_t begin = 0;
  uint64_t end = 0;
  bool is_device = false;
  bool is_known = false;        ///< to CUDA; pageable host memory is not
  bool is_managed = false;      ///< may be on either side
  CUcontext context = nullptr;  ///< of device memory; null for pools and mapped ranges
  int gpu = -1;                 ///< of device memory, its CUDA ordinal

  bool holds(uint64_t address) const { return begin <= address && address < end; }
};

/// Good for one call: memory may be freed between two. Not for several threads.
class MemoryMap {
 public:
  Memory find(const cuda::Driver& driver, uint64_t address);
  void clear() { known_.clear(), recent_ = {}; }

 private:
  const Memory& remember(const Memory& memory);

  std::vector<Memory> known_;       // by their ends, which do not overlap
  std::array<Memory, 2> recent_{};  // a batch asks for both ends of its entries in turn
  size_t oldest_ = 0;               // of the recent ones
};

}  // namespace braid::library
