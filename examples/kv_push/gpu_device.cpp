// A stream of the first GPU writes the pages, and then the watched word, as a kernel of a CUDA
// graph would after __threadfence_system().
#include <cuda.h>
#include <dlfcn.h>

#include <vector>

#include "device.h"

namespace kv_push {
namespace {

// What of the driver is used, by the names under which libcuda exports it.
#define KV_PUSH_DRIVER(use)                                                                  \
  use(cuInit) use(cuDeviceGet) use(cuDevicePrimaryCtxRetain) use(cuDevicePrimaryCtxRelease)  \
      use(cuCtxSetCurrent) use(cuStreamCreate) use(cuStreamSynchronize) use(cuStreamDestroy) \
          use(cuStreamWriteValue64) use(cuMemAlloc) use(cuMemFree) use(cuMemcpyHtoDAsync)    \
              use(cuMemcpyDtoH)
#define KV_PUSH_TEXT_OF(name) #name
#define KV_PUSH_TEXT(name) KV_PUSH_TEXT_OF(name)  // cuda.h's macros say which version a name means

struct Driver {
#define KV_PUSH_MEMBER(name) decltype(&::name) name = nullptr;
  KV_PUSH_DRIVER(KV_PUSH_MEMBER)

  bool load() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW);  // stays
    bool has_all = library != nullptr;
#define KV_PUSH_LOAD(name)                                                                  \
  if (has_all) name = reinterpret_cast<decltype(name)>(dlsym(library, KV_PUSH_TEXT(name))); \
  has_all = has_all && name != nullptr;
    KV_PUSH_DRIVER(KV_PUSH_LOAD)
    return has_all;
  }
};

void must_cuda(CUresult result, const char* what) {
  if (result != CUDA_SUCCESS) die(std::string(what) + ": CUDA error " + std::to_string(result));
}

CUdeviceptr on_gpu(const void* memory) { return reinterpret_cast<CUdeviceptr>(memory); }

class GpuDevice final : public Device {
 public:
  GpuDevice(const Driver& driver, CUdevice gpu) : driver_(driver), gpu_(gpu) {
    must_cuda(driver_.cuDevicePrimaryCtxRetain(&context_, gpu_), "the GPU's context");
    enter();
    must_cuda(driver_.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "a stream");
  }
  ~GpuDevice() override {
    enter();
    for (const CUdeviceptr memory : memory_) (void)driver_.cuMemFree(memory);
    (void)driver_.cuStreamDestroy(stream_);
    (void)driver_.cuDevicePrimaryCtxRelease(gpu_);
  }

  std::byte* allocate(size_t size_bytes) override {
    enter();
    CUdeviceptr memory = 0;
    must_cuda(driver_.cuMemAlloc(&memory, size_bytes), "GPU memory");
    memory_.push_back(memory);
    return reinterpret_cast<std::byte*>(memory);
  }
  void write(std::byte* to, const Bytes& bytes) override {
    enter();
    // The bytes are not pinned, so the driver has taken them when it returns.
    must_cuda(driver_.cuMemcpyHtoDAsync(on_gpu(to), bytes.data(), bytes.size(), stream_), "a copy");
  }
  void signal(uint64_t* word, uint64_t value) override {
    enter();
    must_cuda(driver_.cuStreamWriteValue64(stream_, on_gpu(word), value, 0), "the watched word");
  }
  Bytes read(const std::byte* from, size_t size_bytes) override {
    enter();
    Bytes bytes(size_bytes);
    must_cuda(driver_.cuStreamSynchronize(stream_), "the stream");
    must_cuda(driver_.cuMemcpyDtoH(bytes.data(), on_gpu(from), size_bytes), "a copy back");
    return bytes;
  }
  braid::FabricWatcher::Memory word_memory() const override {
    return braid::FabricWatcher::Memory::kGpu;
  }

 private:
  void enter() { must_cuda(driver_.cuCtxSetCurrent(context_), "the GPU's context"); }

  Driver driver_;
  CUdevice gpu_;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  std::vector<CUdeviceptr> memory_;
};

}  // namespace

braid::Result<std::unique_ptr<Device>> open_gpu() {
  Driver driver;
  CUdevice gpu = 0;
  if (!driver.load())
    return braid::Status::error("libcuda.so.1 is not here, or too old", "Leave out --gpu");
  if (driver.cuInit(0) != CUDA_SUCCESS || driver.cuDeviceGet(&gpu, 0) != CUDA_SUCCESS)
    return braid::Status::error("the CUDA driver sees no GPU", "Leave out --gpu");
  return std::unique_ptr<Device>(std::make_unique<GpuDevice>(driver, gpu));
}

}  // namespace kv_push
