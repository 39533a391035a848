// Copies of a lane's, and how they are put into a stream.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "cuda/driver.h"

namespace braid::fabric::gpu {

/// Copies that have ended, until their owner looks.
class Ended {
 public:
  struct Copy {
    uint64_t tag;
    bool ok;  ///< false: some of it may have been copied; nothing is under way
  };
  void add(std::span<const Copy> copies);
  /// Appends them. False: there are none.
  bool take(std::vector<Copy>& into);

 private:
  std::atomic<bool> has_some_{false};
  std::mutex mutex_;
  std::vector<Copy> copies_;
};

struct Copy {
  CUdeviceptr to = 0;
  CUdeviceptr from = 0;
  uint64_t size_bytes = 0;
  uint64_t tag = 0;
  std::shared_ptr<Ended> ended;
};

/// Which copies have an order of their own: each way has a stream.
enum class Way : uint8_t { kToGpu, kToHost, kBetweenGpus };
inline constexpr size_t kWayCount = 3;

/// Used in a lane's thread, with its context current.
class Mover {
 public:
  explicit Mover(const cuda::Driver& driver) : driver_(driver) {}

  /// Puts all into the stream. If one is refused, those before it are under way all the same.
  CUresult enqueue(Way way, std::span<const Copy> copies, CUstream stream);

 private:
  const cuda::Driver& driver_;
};

}  // namespace braid::fabric::gpu
