// The parts of virtual memory management: address ranges without memory, and memory without an
// address. A mapping, an Allocation of kind kMapped, puts one into the other. The bytes of a
// reserved range are adjacent, so that a copy may cross from one mapping into the next. The world's
// lock covers it.
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

/// The answer of cuMemGetAllocationGranularity on every GPU that braid supports, minimal and
/// recommended.
inline constexpr uint64_t kMappingGranularity = 2u << 20;

/// The GPUs (CUDA ordinals) and the CPU (CU_DEVICE_CPU) that may touch memory with individual
/// access. Others may not.
using Grants = std::map<int, CUmemAccess_flags>;
CUmemAccess_flags granted_to(const Grants& grants, int device);

/// Memory that cuMemCreate made: an anonymous file. Handles and mappings keep it; it is freed with
/// the last of them.
class PhysicalMemory {
 public:
  /// Null if there is no room. `arena` is that of the memory's GPU, null on the host.
  static std::shared_ptr<PhysicalMemory> create(const CUmemAllocationProp& properties, Place place,
                                                Arena* arena, uint64_t size_bytes);
  /// What another process has exported, which has a server of its own: it takes no room here. Null
  /// if the system refuses. The file stays the caller's.
  static std::shared_ptr<PhysicalMemory> adopt(const CUmemAllocationProp& properties, Place place,
                                               int file);
  /// The number of the GPU, in its server, of memory that was made to be shared. Nothing: the file
  /// holds no such memory.
  static std::optional<int> gpu_of(int file);
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
  int references = 0;  ///< how many more times the handle must be released

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

/// The handles for cuMemCreate, cuMemRelease and the sharing of handles. Each call that returns a
/// handle adds a reference, which cuMemRelease removes.
class PhysicalHandles {
 public:
  CUmemGenericAllocationHandle add_reference(const PhysicalPtr& memory);
  /// Null if there is no such handle.
  PhysicalPtr find(CUmemGenericAllocationHandle handle) const;
  void release(CUmemGenericAllocationHandle handle);
  /// The memory whose file is open as `file`; null for any other file.
  PhysicalPtr find_file(int file) const;

 private:
  std::map<CUmemGenericAllocationHandle, PhysicalPtr> referenced_;
  std::map<CUmemGenericAllocationHandle, std::weak_ptr<PhysicalMemory>> all_;
  CUmemGenericAllocationHandle added_ = 0;
};

/// Address ranges that cuMemAddressReserve returned. Neither the CPU nor a GPU may touch them
/// before memory is mapped there.
class Reservations {
 public:
  struct Range {
    uint64_t address = 0;
    uint64_t size_bytes = 0;
    std::byte* bytes = nullptr;  ///< the mapped bytes, for the CPU
  };

  /// `alignment` is a power of two, `hint` an address or 0. Nothing if there is no room.
  std::optional<uint64_t> reserve(uint64_t size_bytes, uint64_t alignment, uint64_t hint);
  void release(uint64_t address);
  /// The range that holds the address; null if none does.
  const Range* find(uint64_t address) const;

  /// Maps the first bytes of the memory to the addresses; false if the system refuses.
  bool map(uint64_t address, uint64_t size_bytes, const PhysicalMemory& memory);
  void unmap(uint64_t address, uint64_t size_bytes);
  /// Lets the CPU use the addresses themselves, or ends that. Only for memory on the host.
  bool set_cpu_access(uint64_t address, uint64_t size_bytes, const PhysicalMemory& memory,
                      bool allowed);

 private:
  std::byte* bytes_at(uint64_t address) const;

  std::map<uint64_t, Range> ranges_;  // by address
};

}  // namespace braid::emulator
