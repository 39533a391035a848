// A kernel of the program's faults on GPU 1 while copies to GPU 0 are under way, which natively
// have nothing to do with it: they arrive, and GPU 0 goes on.
#include "driver_program.h"

extern "C" const unsigned char braid_test_kernels[];

namespace {

using namespace program;

constexpr int kCopies = 4;

CUfunction faulting_kernel() {
  CUmodule module = nullptr;
  CUfunction kernel = nullptr;
  MUST(cuModuleLoadData(&module, braid_test_kernels));
  MUST(cuModuleGetFunction(&kernel, module, "fault"));
  return kernel;
}

}  // namespace

int main(int argc, char** argv) {
  const size_t size_bytes = size_argument(argc, argv);
  // Or the first launch of the faulting kernel loads it, and waits for what is under way.
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  const std::vector<CUcontext> contexts = use_gpus(2);
  require(contexts.size() == 2, "needs two GPUs");
  MUST(cuCtxSetCurrent(contexts[1]));
  const CUfunction fault = faulting_kernel();
  const CUstream failing = new_stream();
  MUST(cuCtxSetCurrent(contexts[0]));
  const CUstream stream = new_stream();
  const Pattern pattern(71);
  const unsigned char* source = pin(size_bytes, pattern);
  CUdeviceptr devices[kCopies];
  for (CUdeviceptr& device : devices) device = allocate(size_bytes);
  to_device(devices[0], source, size_bytes, stream);  // relays are awake
  MUST(cuStreamSynchronize(stream));

  for (const CUdeviceptr device : devices) to_device(device, source, size_bytes, stream);
  MUST(cuCtxSetCurrent(contexts[1]));
  MUST(cuLaunchKernel(fault, 1, 1, 1, 1, 1, 1, 0, failing, nullptr, nullptr));
  MUST(cuCtxSetCurrent(contexts[0]));
  MUST(cuStreamSynchronize(stream));
  const char* name = "?";
  cuGetErrorName(cuStreamSynchronize(failing), &name);
  std::printf("GPU 1: %s\n", name);
  for (const CUdeviceptr device : devices)
    check_device(device, size_bytes, pattern, "beside a fault on GPU 1");
  to_device(devices[0], source, size_bytes, stream);
  MUST(cuStreamSynchronize(stream));
  check_device(devices[0], size_bytes, pattern, "after it");
  print_counts();
  return 0;
}
