// The copies of a lane, and how they are put into a stream.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "cuda/driver.h"
#include "cuda/registered_memory.h"

namespace braid::fabric::gpu {

/// Copies that have ended, kept until their owner takes them.
class Ended {
 public:
  struct Copy {
    uint64_t tag;
    bool ok;  ///< false: some of it may have been copied; nothing is under way
  };
  Ended() = default;
  /// `descriptor`: an eventfd of the owner's, which outlives this object. It is written when copies
  /// end.
  explicit Ended(int descriptor) : descriptor_(descriptor) {}
  void add(std::span<const Copy> copies);
  bool has_some() const { return has_some_.load(std::memory_order_acquire); }
  /// Appends them. False: there are none.
  bool take(std::vector<Copy>& into);

 private:
  const int descriptor_ = -1;
  std::atomic<bool> has_some_{false};
  std::mutex mutex_;
  std::vector<Copy> copies_;
};

/// Makes large copies faster than the driver would, with the semantics of cuMemcpyAsync. Used in a
/// lane's thread, with its context current.
class Carrier {
 public:
  virtual ~Carrier() = default;
  /// Called before the first copy of a lane. It may load code, for which the driver waits for the
  /// context's streams.
  virtual void prepare() = 0;
  /// Called after the last copy in the context, which the program may destroy then.
  virtual void forget() = 0;
  virtual CUresult copy(CUdeviceptr to, CUdeviceptr from, uint64_t size_bytes, CUstream stream) = 0;
};

struct Copy {
  CUdeviceptr to = 0;
  CUdeviceptr from = 0;
  uint64_t size_bytes = 0;
  uint64_t tag = 0;
  std::shared_ptr<Ended> ended;
  bool may_be_kernels = false;  ///< both ends are mapped for the lane's GPU
  /// The owner's number of the pair of regions that the copy goes between. Only copies of one pair
  /// are merged, since the driver refuses a copy that crosses into another allocation.
  uint64_t regions = 0;
  Carrier* carrier = nullptr;  ///< null: the driver
  /// The host memory that it names may be unpinned meanwhile (bounce_buffers.h).
  bool uses_bounce_buffer = false;
};

/// `copy` goes on where `before` ends, and both can be made as one.
bool goes_on(const Copy& before, const Copy& copy);

/// The kinds of copies. Each kind has streams of its own.
enum class CopyKind : uint8_t { kToGpu, kToHost, kBetweenGpus };
inline constexpr size_t kCopyKindCount = 3;

/// Used in a lane's thread, with its context current.
class Mover {
 public:
  explicit Mover(const cuda::Driver& driver) : driver_(driver) {}

  /// Loads the kernel that copies pages. The driver waits for the context's streams to load it, and
  /// holds its lock meanwhile (docs/fabric.md, "Processes and GPUs of one server"). Without the
  /// kernel pages are copied one by one.
  void prepare_pages(CUstream stream);

  /// Puts all copies into the stream. If the driver refuses one, those before it are under way
  /// nevertheless. `list` is below kListCount; no copies of an earlier call with the same `list`
  /// may be under way.
  CUresult enqueue(std::span<const Copy> copies, CUstream stream, size_t list);

  /// Called before the lane leaves the context.
  void close();

  static constexpr size_t kListCount = 8;

 private:
  std::span<const Copy> merge(std::span<const Copy> copies);
  CUresult launch(std::span<const Copy> copies, CUstream stream, size_t list);

  const cuda::Driver& driver_;
  std::vector<Copy> merged_;
  CUmodule module_ = nullptr;
  CUfunction pages_ = nullptr;  // null: it is not loaded
  std::unique_ptr<cuda::RegisteredMemory> lists_;
};

}  // namespace braid::fabric::gpu
