// A kernel of the program's faults on GPU 1 while copies to GPU 0 are under way. The driver ends
// every context of the process with the kernel's error (seen with driver 580): each call says so on
// GPU 0 too, streams that wait say so, and nothing hangs.
#include "driver_program.h"
#include "gate.h"

extern "C" const unsigned char braid_test_kernels[];

namespace {

using namespace program;

constexpr int kCopies = 4;
constexpr int kLimitMs = 20'000;

CUfunction faulting_kernel() {
  CUmodule module = nullptr;
  CUfunction kernel = nullptr;
  MUST(cuModuleLoadData(&module, braid_test_kernels));
  MUST(cuModuleGetFunction(&kernel, module, "fault"));
  return kernel;
}

// What the stream says in the end: an error, or that all is well.
CUresult end_of(CUstream stream) {
  for (int waited_ms = 0;; ++waited_ms) {
    const CUresult result = cuStreamQuery(stream);
    if (result != CUDA_ERROR_NOT_READY) return result;
    require(waited_ms < kLimitMs, "a stream neither ended nor failed");
    sleep_ms(1);
  }
}

void print(const char* what, CUresult result) {
  const char* name = "?";
  cuGetErrorName(result, &name);
  std::printf("%s: %s\n", what, name);
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
  const CUstream stream = new_stream(), held = new_stream();
  const Pattern pattern(71);
  const unsigned char* source = pin(size_bytes, pattern);
  CUdeviceptr devices[kCopies], behind = allocate(size_bytes);
  for (CUdeviceptr& device : devices) device = allocate(size_bytes);
  to_device(devices[0], source, size_bytes, stream);  // relays are awake
  MUST(cuStreamSynchronize(stream));
  check_device(devices[0], size_bytes, pattern, "before the fault");
  hold(held, new_gate());
  to_device(behind, source, size_bytes, held);

  for (const CUdeviceptr device : devices) to_device(device, source, size_bytes, stream);
  MUST(cuCtxSetCurrent(contexts[1]));
  MUST(cuLaunchKernel(fault, 1, 1, 1, 1, 1, 1, 0, failing, nullptr, nullptr));
  print("GPU 1", end_of(failing));
  MUST(cuCtxSetCurrent(contexts[0]));
  print("GPU 0, a stream that waits", end_of(held));
  print("GPU 0, its copies", end_of(stream));
  print("GPU 0, all of it", cuCtxSynchronize());
  CUdeviceptr memory = 0;
  print("GPU 0, more memory", cuMemAlloc(&memory, size_bytes));
  print_counts();
  return 0;
}
