#include "library/native.h"

namespace braid::library {
namespace {

CUresult copy_in_one_call(const cuda::Driver& driver, std::span<const Copy> copies, CUstream stream,
                          NativeArrays& arrays) {
  arrays.destinations.clear();
  arrays.sources.clear();
  arrays.sizes_bytes.clear();
  for (const Copy& copy : copies) {
    arrays.destinations.push_back(copy.destination);
    arrays.sources.push_back(copy.source);
    arrays.sizes_bytes.push_back(copy.size_bytes);
  }
  CUmemcpyAttributes attributes{};
  attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  size_t first_copy = 0;
  size_t failed_copy = 0;
  return driver.copy_batch(arrays.destinations.data(), arrays.sources.data(),
                           arrays.sizes_bytes.data(), copies.size(), &attributes, &first_copy, 1,
                           &failed_copy, stream);
}

}  // namespace

CUresult copy_natively(const cuda::Driver& driver, std::span<const Copy> copies, CUstream stream,
                       bool may_batch, NativeArrays& arrays) {
  // The driver's batch refuses the legacy default stream.
  if (may_batch && copies.size() > 1 && driver.copy_batch != nullptr &&
      stream != CU_STREAM_LEGACY) {
    const CUresult answer = copy_in_one_call(driver, copies, stream, arrays);
    if (answer != CUDA_ERROR_NOT_SUPPORTED) return answer;
  }
  for (const Copy& copy : copies) {
    const CUresult answer =
        driver.cuMemcpyAsync(copy.destination, copy.source, copy.size_bytes, stream);
    if (answer != CUDA_SUCCESS) return answer;
  }
  return CUDA_SUCCESS;
}

}  // namespace braid::library
