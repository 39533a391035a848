// What programs and libraries of CUDA's runtime hear of their GPUs, and whether a copy arrives.
#pragma once

#include <cuda_runtime_api.h>

/// The runtime's functions, however they were found.
struct Cudart {
// clang-format off
#define CUDART_FUNCTIONS(X) \
  X(cudaGetDeviceCount) X(cudaSetDevice) X(cudaSetValidDevices) X(cudaChooseDevice) \
  X(cudaDeviceGetAttribute) X(cudaDeviceGetPCIBusId) X(cudaDeviceGetByPCIBusId) \
  X(cudaDeviceCanAccessPeer) X(cudaGetLastError) X(cudaRuntimeGetVersion) X(cudaMallocHost) \
  X(cudaMemcpy)
// clang-format on
#define CUDART_DECLARE(name) decltype(&::name) name;
  CUDART_FUNCTIONS(CUDART_DECLARE)
#undef CUDART_DECLARE
  cudaError_t (*cudaMalloc)(void**, size_t);  // cuda_runtime.h has others of the name
};

/// Prints all that can be asked of GPUs by number, and by the addresses on the command line (from
/// `words`, null at its end), then copies and looks. Ends the process when a copy goes wrong.
void report(const Cudart& cudart, char** words);
