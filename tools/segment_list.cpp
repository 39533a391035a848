#include "tools/segment_list.h"

namespace braid::tools {

void SegmentList::add(const multipath::Segment& segment) {
  const bool to_device = direction_ == multipath::Direction::kHostToDevice;
  const auto host = reinterpret_cast<CUdeviceptr>(segment.host);
  segments_.push_back(segment);
  to_.push_back(to_device ? segment.device : host);
  from_.push_back(to_device ? host : segment.device);
  sizes_.push_back(segment.size_bytes);
}

Status SegmentList::copy_natively(const cuda::Driver& driver, CUstream stream) {
  if (driver.copy_batch == nullptr)
    return Status::error("this driver has no batches", "Install one for CUDA 12.8 or newer");
  CUmemcpyAttributes attributes{};
  attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  size_t first = 0, failed = 0;
  return driver.check(driver.copy_batch(to_.data(), from_.data(), sizes_.data(), sizes_.size(),
                                        &attributes, &first, 1, &failed, stream),
                      "a native batch");
}

}  // namespace braid::tools
