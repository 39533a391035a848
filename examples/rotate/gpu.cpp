#include "gpu.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

extern "C" {
// The kernel as nvcc makes it; decoder.cu.
extern const unsigned char rotate_kernels[];
// Another image of the same kernel, for a driver that finds no function in the first: the tests of
// braid link one for the emulated server.
__attribute__((weak)) const void* rotate_twin_image();
}

namespace rotate {
namespace {

// What of the driver is used, by the names under which libcuda exports it.
#define ROTATE_DRIVER(use)                                                                   \
  use(cuInit) use(cuDeviceGet) use(cuDevicePrimaryCtxRetain) use(cuDevicePrimaryCtxRelease)  \
      use(cuCtxSetCurrent) use(cuStreamCreate) use(cuStreamSynchronize) use(cuStreamDestroy) \
          use(cuMemAlloc) use(cuMemFree) use(cuMemHostAlloc) use(cuMemFreeHost)              \
              use(cuModuleLoadData) use(cuModuleUnload) use(cuModuleGetFunction)             \
                  use(cuLaunchKernel)
#define ROTATE_TEXT_OF(name) #name
#define ROTATE_TEXT(name) ROTATE_TEXT_OF(name)  // cuda.h's macros say which version a name means

struct Driver {
#define ROTATE_MEMBER(name) decltype(&::name) name = nullptr;
  ROTATE_DRIVER(ROTATE_MEMBER)

  Driver() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW);  // stays
    if (library == nullptr) die("there is no CUDA driver");
#define ROTATE_LOAD(name)                                                     \
  name = reinterpret_cast<decltype(name)>(dlsym(library, ROTATE_TEXT(name))); \
  if (name == nullptr) die("the CUDA driver has no " ROTATE_TEXT(name));
    ROTATE_DRIVER(ROTATE_LOAD)
  }
};

const Driver& driver() {
  static const Driver opened;
  return opened;
}

void must(CUresult result, const char* what) {
  if (result != CUDA_SUCCESS)
    die(std::string(what) + ": CUDA error " + std::to_string(static_cast<int>(result)));
}

}  // namespace

void die(const std::string& why) {
  std::fprintf(stderr, "rotate: %s\n", why.c_str());
  std::exit(1);
}

Gpu::Gpu() {
  must(driver().cuInit(0), "starting CUDA");
  must(driver().cuDeviceGet(&device_, 0), "the first GPU");
  must(driver().cuDevicePrimaryCtxRetain(&context_, device_), "the GPU's context");
  must(driver().cuCtxSetCurrent(context_), "the GPU's context");
  must(driver().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "a stream");
  load_kernel();
}

void Gpu::load_kernel() {
  must(driver().cuModuleLoadData(&module_, rotate_kernels), "loading the kernel");
  if (driver().cuModuleGetFunction(&kernel_, module_, kKernelName) == CUDA_SUCCESS) return;
  if (rotate_twin_image == nullptr) die("this driver has no " + std::string(kKernelName));
  must(driver().cuModuleUnload(module_), "unloading the kernel");
  must(driver().cuModuleLoadData(&module_, rotate_twin_image()), "loading the kernel's twin");
  must(driver().cuModuleGetFunction(&kernel_, module_, kKernelName), "finding the kernel");
}

Gpu::~Gpu() {
  for (void* memory : host_memory_) (void)driver().cuMemFreeHost(memory);
  (void)driver().cuModuleUnload(module_);
  (void)driver().cuStreamDestroy(stream_);
  (void)driver().cuDevicePrimaryCtxRelease(device_);
}

CUdeviceptr Gpu::allocate(size_t size_bytes) {
  CUdeviceptr memory = 0;
  must(driver().cuMemAlloc(&memory, size_bytes), "GPU memory");
  return memory;
}

void Gpu::free(CUdeviceptr memory) { must(driver().cuMemFree(memory), "freeing GPU memory"); }

void* Gpu::allocate_host(size_t size_bytes) {
  void* memory = nullptr;
  must(driver().cuMemHostAlloc(&memory, size_bytes, CU_MEMHOSTALLOC_DEVICEMAP), "pinned memory");
  host_memory_.push_back(memory);
  return memory;
}

void Gpu::launch(const StepArgs& args) {
  if (args.request_count == 0) return;
  StepArgs own = args;
  void* parameters[] = {&own};
  must(driver().cuLaunchKernel(kernel_, args.request_count, 1, 1, kHead, 1, 1, 0, stream_,
                               parameters, nullptr),
       "launching a step");
}

void Gpu::synchronize() { must(driver().cuStreamSynchronize(stream_), "waiting for a step"); }

}  // namespace rotate
