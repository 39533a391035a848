#include "multipath/native_copy.h"

namespace braid::multipath {

CUresult copy_natively(const cuda::Driver& driver, const Batch& linear) {
  const auto& [host, device, size_bytes] = linear.first();
  return linear.direction == Direction::kHostToDevice
             ? driver.cuMemcpyHtoDAsync(device, host, size_bytes, linear.stream)
             : driver.cuMemcpyDtoHAsync(host, device, size_bytes, linear.stream);
}

}  // namespace braid::multipath
