// Two processes of one server, each with memory on a GPU of its own and host memory: one writes
// into the other's, through braid's engine.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cuda/driver.h"
#include "fabric/engine.h"
#include "fabric/gpu/host_memory.h"

namespace braid::bench {

struct GpuPairOptions {
  std::string wire = "shm";  ///< a provider of libfabric, or "local"
  uint64_t memory_bytes = 64 << 20;
  bool is_mapped = false;  ///< of cuMemCreate, shared by file descriptors; else of cuMemAlloc
  int gpus[2] = {0, 1};    ///< of the writer, and of the owner; where there are fewer, the same
};

/// Ends the process with a message if the driver refuses: these are measurements.
void must(const cuda::Driver& driver, CUresult result, const char* call);

/// Memory of one process.
struct Memories {
  Memories(const cuda::Driver& driver, int gpu, uint64_t size_bytes, bool is_mapped);
  std::span<std::byte> of_gpu() const {
    return {reinterpret_cast<std::byte*>(address), host->bytes().size()};
  }

  CUcontext context = nullptr;
  CUdeviceptr address = 0;
  std::shared_ptr<fabric::gpu::HostMemory> host;  // huge pages, not pinned
};

class GpuPair {
 public:
  enum class Kind : uint8_t { kGpu, kHost };

  /// Forks: to be called before CUDA is started and libfabric is loaded. The other process lives
  /// until this one ends.
  explicit GpuPair(const GpuPairOptions& options);
  ~GpuPair();

  const cuda::Driver& driver() const { return driver_; }
  const Memories& memories() const { return *memories_; }

  /// Writes memory of that kind to the other process's, in writes of `size_bytes`, or in pages of
  /// that size, `times` times; until all are done.
  void write(Kind kind, uint64_t size_bytes, bool is_paged, uint64_t times);
  /// What `write` writes in one time: the largest multiple of the size that the memory holds.
  uint64_t written_bytes(uint64_t size_bytes, bool is_paged) const;
  /// Fills this memory, writes it, and asks the other process what it sees.
  bool verify(Kind kind, uint64_t size_bytes, bool is_paged);

 private:
  struct Shared;
  [[noreturn]] void serve();
  void start_driver(int side);
  std::unique_ptr<fabric::Engine> open_engine() const;
  void fill(Kind kind, uint64_t seed);
  bool is_right(Kind kind, uint64_t seed, uint64_t checked_bytes) const;
  uint64_t pages_at_once(uint64_t size_bytes, bool is_paged) const;
  uint64_t post(Kind kind, uint64_t offset_bytes, uint64_t size_bytes);
  uint64_t post_pages(Kind kind, uint64_t first, uint64_t count, uint64_t page_bytes);
  bool has_ended(uint64_t ticket);

  const GpuPairOptions options_;
  Shared* shared_;
  pid_t other_ = -1;
  cuda::Driver driver_;
  std::unique_ptr<Memories> memories_;
  std::unique_ptr<fabric::Engine> engine_;
  uint64_t targets_[2] = {0, 0};  // by kind
  uint64_t regions_[2] = {0, 0};
  uint64_t seed_ = 1;
};

}  // namespace braid::bench
