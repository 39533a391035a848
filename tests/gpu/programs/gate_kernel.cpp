#include <map>

#include "driver_program.h"
#include "gate.h"

extern "C" const unsigned char braid_test_kernels[];

namespace program {
namespace {

CUfunction kernel_here() {
  static std::map<CUcontext, CUfunction> kernels;
  CUcontext context = nullptr;
  MUST(cuCtxGetCurrent(&context));
  CUfunction& kernel = kernels[context];
  if (kernel == nullptr) {
    CUmodule module = nullptr;
    MUST(cuModuleLoadData(&module, braid_test_kernels));
    MUST(cuModuleGetFunction(&kernel, module, "hold_until"));
  }
  return kernel;
}

}  // namespace

// Drivers load a kernel's code when it is first launched, which waits for the GPU.
void prepare_gate() {
  static volatile uint32_t* open = nullptr;
  if (open == nullptr) open = reinterpret_cast<uint32_t*>(pin(sizeof *open));
  store(open, 1);
  const CUstream stream = new_stream();
  hold(stream, open);
  MUST(cuStreamSynchronize(stream));
  MUST(cuStreamDestroy(stream));
}

void hold(CUstream stream, volatile uint32_t* word) {
  void* arguments[] = {&word};
  MUST(cuLaunchKernel(kernel_here(), 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr));
}

void hold_every_processor(CUstream stream, const volatile uint32_t* word) {
  constexpr unsigned kThreads = 1024, kBlocksEach = 4;
  int processors = 0;
  CUdevice gpu = 0;
  MUST(cuCtxGetDevice(&gpu));
  MUST(cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, gpu));
  void* arguments[] = {&word};
  MUST(cuLaunchKernel(kernel_here(), kBlocksEach * static_cast<unsigned>(processors), 1, 1,
                      kThreads, 1, 1, 0, stream, arguments, nullptr));
}

}  // namespace program
