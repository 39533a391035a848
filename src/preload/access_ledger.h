// The access of GPUs to memory where it is granted GPU by GPU, as the program has set it. Braid
// gives its relays access to the same memory. The program must still get the answers that it would
// get without braid, and braid must keep its access while copies are under way. Pure bookkeeping of
// CUDA's rules: access is set for whole mappings, or for a pool; it ends with the mapping or the
// pool.
#pragma once

#include <cuda.h>

#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "multipath/access.h"

namespace braid::preload {

using multipath::GpuSet;

/// Addresses of mapped memory.
struct MappedRange {
  CUdeviceptr address = 0;
  size_t size_bytes = 0;
  bool operator==(const MappedRange&) const = default;
};

/// Not safe for concurrent use: its owner locks.
class AccessLedger {
  struct Range;
  struct Pool;

 public:
  using AccessDescs = std::span<const CUmemAccessDesc>;

  /// The program has set this access, and the driver has carried it out.
  void set(const MappedRange& range, AccessDescs descs);
  void set(CUmemoryPool pool, AccessDescs descs);
  /// braid gives these GPUs all access. One too many here does no harm: they read as the program
  /// has set them.
  void grant(const MappedRange& range, GpuSet gpus);
  /// Of a pool that is not known, nothing is noted.
  void grant(CUmemoryPool pool, GpuSet gpus);
  /// The program has made the pool, so braid may grant access to it. Other pools (imported, shared)
  /// it may not.
  void add(CUmemoryPool pool, int gpu);
  /// The driver's own pool of a GPU, which nobody can destroy. What has been set of it stays.
  void add_default(CUmemoryPool pool, int gpu);
  using Ranges = std::map<CUdeviceptr, Range>;  ///< by their beginnings; they do not overlap
  using Pools = std::map<CUmemoryPool, Pool>;

  /// The memory is about to be freed. Returns what was known of it; nothing of a range that wraps,
  /// which the driver refuses.
  Ranges forget(const MappedRange& range);
  Pools forget(CUmemoryPool pool);
  /// The driver has not freed it. What has been set meanwhile stays.
  void restore(const Ranges& forgotten);
  void restore(const Pools& forgotten);

  /// True if nothing of the range has been unmapped since its access was set.
  bool knows(const MappedRange& range) const;
  /// True if the pool is one that braid may grant access to, of this GPU.
  bool knows(CUmemoryPool pool, int gpu) const;

  /// The answer to the program about a GPU; nothing if the driver's own answer is right.
  std::optional<CUmemAccess_flags> answer(CUdeviceptr address, int gpu) const;
  std::optional<CUmemAccess_flags> answer(CUmemoryPool pool, int gpu) const;

  /// GPUs that keep all access to some of the memory, whatever the program sets: braid's copies
  /// under way may be using it.
  GpuSet granted(const MappedRange& range) const;
  GpuSet granted(CUmemoryPool pool) const;

  /// Ranges for which access has been set, and pools that the program made, each with its GPU.
  std::vector<MappedRange> ranges() const;
  std::vector<std::pair<CUmemoryPool, int>> pools() const;

 private:
  struct Access {
    GpuSet reads = 0;  ///< set by the program: read only
    GpuSet writes = 0;
    GpuSet granted = 0;  ///< given by braid
    void set(AccessDescs descs);
    void add(const Access& other);
    std::optional<CUmemAccess_flags> answer(int gpu) const;
  };
  struct Range {
    CUdeviceptr end = 0;
    Access access;
  };
  struct Pool {
    int gpu = -1;  ///< -1: not made by the program
    Access access;
  };

  void split(CUdeviceptr at);
  template <typename Change>
  void change(const MappedRange& range, const Change& change);

  Ranges ranges_;
  Pools pools_;
};

}  // namespace braid::preload
