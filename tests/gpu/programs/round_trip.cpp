// A library that copies to the GPU and back, for programs that open and close it.
#include <cuda.h>

extern "C" __attribute__((visibility("default"))) int round_trip(void* landing, CUdeviceptr device,
                                                                 const void* source, size_t bytes,
                                                                 CUstream stream) {
  const CUresult there = cuMemcpyHtoDAsync(device, source, bytes, stream);
  return there != CUDA_SUCCESS ? there : cuMemcpyDtoHAsync(landing, device, bytes, stream);
}
