// The seam between rotation and the copying of its bytes: the driver's own batches over the GPU's
// own link (NativeCopier), a kernel over the same link (kernel_copier.h), or braid's batches over
// every link (braid_copier.h). Rotation is the same code with each.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"
#include "cuda/driver.h"
#include "library/copy_list.h"
#include "library/native.h"

namespace braid::kv {

enum class Urgency : uint8_t {
  kBulk,   ///< no request waits: eager write-through
  kUrgent  ///< a request waits for the blocks, or for their slots
};

/// The bytes that a copier has put into streams so far.
struct Carried {
  uint64_t accelerated_bytes = 0;
  uint64_t native_bytes = 0;  ///< what the driver carries

  bool operator==(const Carried&) const = default;
};

class Copier {
 public:
  virtual ~Copier() = default;

  /// Puts all copies into `stream`; afterwards the CPU has nothing left to do for them. The copies
  /// go the same way and have no order among each other; one end of each is pinned host memory. The
  /// stream's context is current. Waits only where cuMemcpyBatchAsync would wait. After a failure
  /// some copies may be in the stream. Its code is BRAID_ERROR_CUDA, or it has a `cuda_result`.
  virtual Status copy(std::span<const library::Copy> copies, CUstream stream, Urgency urgency) = 0;

  /// Nothing for a copier that has no choice.
  virtual Carried carried() const { return {}; }
};

class NativeCopier final : public Copier {
 public:
  explicit NativeCopier(const cuda::Driver& driver) : driver_(driver) {}
  Status copy(std::span<const library::Copy> copies, CUstream stream, Urgency urgency) override;

 private:
  const cuda::Driver& driver_;
  library::NativeArrays arrays_;
};

}  // namespace braid::kv
