// The paper's Task Launcher (MMA section 3.4.3): one hop of one slice as driver calls.
//
// A slice that is relayed makes two hops: host to relay buffer over the relay's PCIe link, relay
// buffer to target over NVLink; device to host is the mirror image. The two pipelines overlap:
// while one slice makes its second hop, the next ones are on their first.
#pragma once

#include <span>
#include <vector>

#include "cuda/driver.h"
#include "multipath/copy_engine/dispatch.h"
#include "multipath/copy_engine/pieces.h"

namespace braid::multipath::copy_engine {

enum class Hop : uint8_t { kDirect, kToBuffer, kFromBuffer };

/// The hop goes over the PCIe link of the slice's GPU, not over NVLink.
inline bool uses_link(Hop hop, Direction direction) {
  return hop == Hop::kDirect || (hop == Hop::kToBuffer) == (direction == Direction::kHostToDevice);
}

struct HopJob {
  Hop hop = Hop::kDirect;
  const Slice* slice = nullptr;
  std::span<const Piece> pieces;  ///< of the slice's job
  CUdeviceptr buffer = 0;         ///< on `via`; as large as the slice
  CUcontext via = nullptr;        ///< must be current
  CUcontext target = nullptr;
  CUstream stream = nullptr;  ///< of `via`
};

/// Enqueues hops. The driver has read the lists that it is given when a call returns, so one room
/// for them serves all slices. For one thread.
class Launcher {
 public:
  explicit Launcher(const cuda::Driver& driver);

  /// What one call carries: a slice has at most so many pieces. The driver's batches take many;
  /// with a call for each piece, a slice of many would keep other links waiting.
  uint32_t most_pieces() const { return static_cast<uint32_t>(to_.size()); }

  /// Enqueues the slice's bytes: a copy for each run of bytes that is contiguous at both ends of
  /// this hop, several as one batch (`cuMemcpyBatchAsync`). A slice that has come back goes without
  /// batches, as on drivers that have none. After an error, some copies may have been enqueued.
  CUresult launch(const HopJob& job);

 private:
  CUresult copy(const HopJob& job, size_t run) const;
  CUresult copy_all(const HopJob& job, size_t runs);

  const cuda::Driver& driver_;
  // The runs of the hop, as the driver takes them.
  std::vector<CUdeviceptr> to_;
  std::vector<CUdeviceptr> from_;
  std::vector<size_t> sizes_;
};

}  // namespace braid::multipath::copy_engine
