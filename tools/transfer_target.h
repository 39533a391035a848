// What the commands that own memory share: memory of the host or of a GPU, and the wait until they
// are to end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/status.h"
#include "braid/transfer.h"
#include "cuda/driver.h"

namespace braid::tools {

/// Memory that an engine registers: the host's, or a GPU's. Any thread may call `put` and `get`.
class TransferMemory {
 public:
  /// Opens the driver for memory of a GPU: call it before the engine is opened, and let the engine
  /// end first.
  static Result<TransferMemory> open(uint64_t size_bytes, std::optional<int> gpu);
  TransferMemory(TransferMemory&& other) noexcept = default;
  TransferMemory& operator=(TransferMemory&&) = delete;
  ~TransferMemory();

  /// Host memory is the engine's own, on its NUMA node.
  Status add_to(Transfer& engine, Transfer::Rights rights);
  std::byte* address() const { return address_; }
  uint64_t size_bytes() const { return size_bytes_; }
  bool is_on_gpu() const { return gpu_ != nullptr; }
  /// Between the memory and plain memory of this process.
  Status put(std::byte* to, const std::byte* from, uint64_t size_bytes) const;
  Status get(std::byte* to, const std::byte* from, uint64_t size_bytes) const;

 private:
  struct Gpu {
    cuda::Driver driver;
    CUcontext context = nullptr;
    CUdeviceptr memory = 0;
  };
  explicit TransferMemory(uint64_t size_bytes) : size_bytes_(size_bytes) {}

  uint64_t size_bytes_;
  std::byte* address_ = nullptr;
  std::unique_ptr<Gpu> gpu_;
};

/// For an engine with gpu_memory, which uses the driver that its process has loaded.
Status load_driver_if(bool gpu_memory);

/// SIGINT and SIGTERM wait for `serve_until_the_end`, in this thread and those that it makes.
void hold_end_signals();
/// Until one of them comes, or for so long (0: no limit). Notifications are taken and dropped.
Status serve_until_the_end(Transfer& engine, int limit_s);

}  // namespace braid::tools
