// Names for the linker, as in the CUDA toolkit's lib64/stubs/libcuda.so. Never loaded at run time;
// if it is, each call says CUDA_ERROR_STUB_LIBRARY.
#define STUB(name)                                       \
  __attribute__((visibility("default"))) int name(void); \
  int name(void) { return 34; }

STUB(cuInit)
STUB(cuDriverGetVersion)
STUB(cuGetErrorName)
STUB(cuGetErrorString)
STUB(cuDeviceGet)
STUB(cuDeviceGetCount)
STUB(cuDeviceGetName)
STUB(cuDevicePrimaryCtxRetain)
STUB(cuDevicePrimaryCtxRelease_v2)
STUB(cuCtxSetCurrent)
STUB(cuStreamCreate)
STUB(cuStreamDestroy_v2)
STUB(cuStreamSynchronize)
STUB(cuEventCreate)
STUB(cuEventDestroy_v2)
STUB(cuEventRecord)
STUB(cuEventElapsedTime)
STUB(cuEventElapsedTime_v2)
STUB(cuMemAlloc_v2)
STUB(cuMemFree_v2)
STUB(cuMemHostAlloc)
STUB(cuMemFreeHost)
STUB(cuMemcpyHtoDAsync_v2)
STUB(cuMemcpyDtoHAsync_v2)
STUB(cuMemcpyHtoD_v2)
STUB(cuMemcpyDtoH_v2)
