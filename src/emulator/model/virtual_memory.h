// What virtual memory management is made of: ranges of addresses without memory, and memory without
// an address. A mapping, an Allocation of kind kMapped, puts one into the other. The bytes of a
// reserved range lie side by side, so that a copy may cross from one mapping into the next.
// The world's lock covers it.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "emulator/model/arena.h"
#include "emulator/model/machine.h"

namespace braid::emulator {

/// cuMemGetAllocationGranularity's answer on every GPU that braid supports, minimal and
/// recommended.
inline constexpr uint64_t kMappingGranularity = 2u << 20;

/// Which GPUs, by CUDA ordinal, and whether the CPU (CU_DEVICE_CPU), may touch memory to which
/// access is granted one by one. Those not listed may not.
using Grants = std::map<int, CUmemAccess_flags>;
CUmemAccess_flags granted_to(const Grants& grants, int device);

/// Memory that cuMemCreate made: an anonymous file. Handles and mappings hold it; it goes with the
/// last of them.
class PhysicalMemory {
 public:
  /// Null when there is no room. `arena` is that of the GPU the memory lies on, null on the host.
  static std::shared_ptr<PhysicalMemory> create(const CUmemAllocationProp& properties, Place place,
                                                Arena* arena, uint64_t size_bytes);
  ~PhysicalMemory();
  PhysicalMemory(const PhysicalMemory&) = delete;
  PhysicalMemory& operator=(const PhysicalMemory&) = delete;

  const CUmemAllocationProp& properties() const { return properties_; }
  Place place() const { return place_; }
  uint64_t size_bytes() const { return size_; }
  int file() const { return file_; }
  /// CUDA ordinal of its GPU; CU_DEVICE_CPU on the host.
  int device() const;

  CUmemGenericAllocationHandle handle = 0;
  int references = 0;  ///< how often the handle must still be released

 private:
  PhysicalMemory(const CUmemAllocationProp& properties, Place place, Arena* arena, uint64_t size,
                 int file);

  CUmemAllocationProp properties_;
  Place place_;
  Arena* arena_;
  uint64_t size_;
  int file_;
};
using PhysicalPtr = std::shared_ptr<PhysicalMemory>;

/// What cuMemCreate, cuMemRelease and the sharing of handles need. Each call that returns a handle
/// adds a reference, which cuMemRelease takes away.
class PhysicalHandles {
 public:
  CUmemGenericAllocationHandle add_reference(const PhysicalPtr& memory);
  /// Null when there is no such handle.
  PhysicalPtr find(CUmemGenericAllocationHandle handle) const;
  void release(CUmemGenericAllocationHandle handle);
  /// The memory whose file is open as `file`; null for any other file.
  PhysicalPtr find_file(int file) const;

 private:
  std::map<CUmemGenericAllocationHandle, PhysicalPtr> referenced_;
  std::map<CUmemGenericAllocationHandle, std::weak_ptr<PhysicalMemory>> all_;
  CUmemGenericAllocationHandle added_ = 0;
};

/// Address ranges that cuMemAddressReserve handed out. Neither the CPU nor a GPU may touch them
/// until something is mapped there.
class Reservations {
 public:
  struct Range {
    uint64_t address = 0;
    uint64_t size_bytes = 0;
    std::byte* bytes = nullptr;  ///< where the CPU finds what is mapped
  };

  /// `alignment` is a power of two, `hint` an address or 0. Nothing when there is no room.
  std::optional<uint64_t> reserve(uint64_t size_bytes, uint64_t alignment, uint64_t hint);
  void release(uint64_t address);
  /// The range that holds the address; null when none does.
  const Range* find(uint64_t address) const;

  /// Puts the first bytes of the memory behind the addresses; false when the system refuses.
  bool map(uint64_t address, uint64_t size_bytes, const PhysicalMemory& memory);
  void unmap(uint64_t address, uint64_t size_bytes);
  /// Lets the CPU follow the addresses themselves, or no longer. Only for what lies on the host.
  bool set_cpu_access(uint64_t address, uint64_t size_bytes, const PhysicalMemory& memory,
                      bool allowed);

 private:
  std::byte* bytes_at(uint64_t address) const;

  std::map<uint64_t, Range> ranges_;  // by address
};

}  // namespace braid::emulator
