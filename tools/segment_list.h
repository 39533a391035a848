// A batch of segments in both forms: as the engine takes it, and as the driver does.
#pragma once

#include <span>
#include <vector>

#include "base/status.h"
#include "cuda/driver.h"
#include "multipath/transfer.h"

namespace braid::tools {

class SegmentList {
 public:
  explicit SegmentList(multipath::Direction direction) : direction_(direction) {}

  void add(const multipath::Segment& segment);
  std::span<const multipath::Segment> segments() const { return segments_; }

  /// As one batch of the driver's, in the stream's order. Fails where the driver has none.
  Status copy_natively(const cuda::Driver& driver, CUstream stream);

 private:
  multipath::Direction direction_;
  std::vector<multipath::Segment> segments_;
  std::vector<CUdeviceptr> to_;
  std::vector<CUdeviceptr> from_;
  std::vector<size_t> sizes_;
};

}  // namespace braid::tools
