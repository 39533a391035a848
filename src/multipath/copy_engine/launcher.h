// The paper's Task Launcher (MMA section 3.4.3): one hop of one slice as driver calls.
//
// A slice that is relayed makes two hops: host to relay buffer over the relay's PCIe link, relay
// buffer to target over NVLink; device to host is the mirror image. The two pipelines overlap:
// while one slice makes its second hop, the next ones are on their first.
#pragma once

#include <span>

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

/// Enqueues the slice's bytes: one copy for each run of bytes that is contiguous at both ends of
/// this hop. After an error, some copies may have been enqueued.
CUresult launch(const cuda::Driver& driver, const HopJob& job);

}  // namespace braid::multipath::copy_engine
