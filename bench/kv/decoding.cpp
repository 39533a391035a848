#include "bench/kv/decoding.h"

#include "bench/kv/decode_kernel.h"

namespace braid::bench {
namespace {

constexpr unsigned kBlocksOfMultiprocessor = 4;

}  // namespace

Decoding::Decoding(const Gpu& gpu, uint64_t size_bytes)
    : gpu_(gpu), size_bytes_(size_bytes), memory_(gpu, size_bytes + sizeof(uint32_t)) {
  const cuda::Driver& driver = gpu.driver;
  must(driver, driver.cuMemsetD8(memory_.at(), 0, size_bytes + sizeof(uint32_t)), "a cache");
  must(driver, driver.cuModuleLoadData(&module_, decode_image()), "loading the decode kernel");
  if (driver.cuModuleGetFunction(&function_, module_, kDecodeKernelName) != CUDA_SUCCESS) {
    driver.cuModuleUnload(module_);
    must(driver, driver.cuModuleLoadData(&module_, decode_twin_image()), "loading the decode twin");
    must(driver, driver.cuModuleGetFunction(&function_, module_, kDecodeKernelName),
         "finding the decode kernel");
  }
  CUdevice device = 0;
  int multiprocessors = 1;
  must(driver, driver.cuCtxGetDevice(&device), "asking for the GPU");
  must(driver,
       driver.cuDeviceGetAttribute(&multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                                   device),
       "asking for the GPU's size");
  blocks_ = static_cast<unsigned>(multiprocessors) * kBlocksOfMultiprocessor;
  must(driver, driver.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "a stream");
  for (CUevent* event : {&begin_, &end_})
    must(driver, driver.cuEventCreate(event, CU_EVENT_DEFAULT), "an event");
}

Decoding::~Decoding() {
  for (const CUevent event : {begin_, end_}) gpu_.driver.cuEventDestroy(event);
  gpu_.driver.cuStreamDestroy(stream_);
  gpu_.driver.cuModuleUnload(module_);
}

void Decoding::launch(int kernels) {
  const cuda::Driver& driver = gpu_.driver;
  DecodeArgs args{memory_.at(), size_bytes_, memory_.at(size_bytes_)};
  void* parameters[] = {&args};
  must(driver, driver.cuEventRecord(begin_, stream_), "an event");
  for (int i = 0; i < kernels; ++i)
    must(driver,
         driver.cuLaunchKernel(function_, blocks_, 1, 1, kDecodeThreads, 1, 1, 0, stream_,
                               parameters, nullptr),
         "launching the decode kernel");
  must(driver, driver.cuEventRecord(end_, stream_), "an event");
}

double Decoding::elapsed_s() const {
  float ms = 0;
  must(gpu_.driver, gpu_.driver.cuStreamSynchronize(stream_), "waiting for kernels");
  must(gpu_.driver, gpu_.driver.cuEventElapsedTime(&ms, begin_, end_), "timing kernels");
  return ms / 1e3;
}

double Decoding::alone_s(int kernels) {
  launch(kernels);
  return elapsed_s();
}

Decoding::Beside Decoding::beside(int kernels, Contender& rotation) {
  Beside beside;
  launch(kernels);
  while (gpu_.driver.cuEventQuery(end_) == CUDA_ERROR_NOT_READY)
    beside.moved_bytes += rotation.turn(Moves::kBoth).moved_bytes;
  beside.seconds = elapsed_s();
  return beside;
}

}  // namespace braid::bench
