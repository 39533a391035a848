// Stream-ordered pools. A pool counts the bytes that it has handed out, and those that it keeps on
// its GPU for later; the addresses come from the GPU's arena. The world's lock covers it.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "emulator/model/arena.h"
#include "emulator/model/handles.h"
#include "emulator/model/virtual_memory.h"

namespace braid::emulator {

struct Pool {
  CUmemoryPool handle = nullptr;
  int device = 0;           ///< CUDA ordinal
  int gpu = 0;              ///< number in the server
  uint64_t most_bytes = 0;  ///< CUmemPoolProps::maxSize; 0: all of the GPU
  std::shared_ptr<Grants> grants = std::make_shared<Grants>();  ///< shared by its allocations
  uint64_t release_threshold_bytes = 0;
  uint64_t used_bytes = 0;
  uint64_t used_high_bytes = 0;
  uint64_t cached_bytes = 0;  ///< freed, and kept on the GPU
  uint64_t reserved_high_bytes = 0;
  std::map<int, int> reuse;  ///< CU_MEMPOOL_ATTR_REUSE_*, as set; they change nothing here

  uint64_t reserved_bytes() const { return used_bytes + cached_bytes; }

  /// The address of a new allocation; nothing when the pool or the GPU is full.
  std::optional<uint64_t> allocate(Arena& arena, uint64_t size_bytes);
  /// Gives back an allocation. Bytes beyond the release threshold go to the GPU at once; a driver
  /// does that when the program next synchronises.
  void release(Arena& arena, uint64_t address, uint64_t size_bytes);
  /// Frees kept bytes, until at most `keep_bytes` are reserved.
  void trim(Arena& arena, uint64_t keep_bytes);
};
using PoolPtr = std::shared_ptr<Pool>;

/// The pools of a server's devices: a default one each, and those that the program made.
class Pools {
 public:
  explicit Pools(const std::vector<int>& visible);

  PoolPtr create(int device, int gpu, uint64_t most_bytes);
  PoolPtr find(CUmemoryPool handle) const { return table_.find(handle); }
  PoolPtr default_of(int device) const { return defaults_[device]; }
  PoolPtr current_of(int device) const { return current_[device]; }
  void set_current(int device, PoolPtr pool) { current_[device] = std::move(pool); }
  bool is_default(const PoolPtr& pool) const { return defaults_[pool->device] == pool; }
  /// Its allocations live on, and so does the pool until the last of them is freed.
  void destroy(const PoolPtr& pool);

 private:
  HandleTable<CUmemoryPool, Pool> table_;
  std::vector<PoolPtr> defaults_;  // by CUDA ordinal
  std::vector<PoolPtr> current_;
};

}  // namespace braid::emulator
