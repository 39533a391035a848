// calls: what the driver's calls cost the CPU of which braid's transfers consist, in microseconds:
// one behind the other in a stream, and the first one after the stream has been waited for.
// Medians (lowest-9th decile). Needs two GPUs; knows nothing of braid.
#include <cuda.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace {

constexpr int kRounds = 20;
constexpr int kCallsOfRound = 20;  // few enough that the stream's queue has room
constexpr size_t kBytes = 16 << 20;
constexpr const char* kNothing =
    ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry nothing() { ret; }\n";

void must(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "calls: %s: error %d\n", call, static_cast<int>(result));
  std::exit(1);
}
#define MUST(call) must(call, #call)

double now_us() {
  using std::chrono::steady_clock;
  return std::chrono::duration<double, std::micro>(steady_clock::now().time_since_epoch()).count();
}

struct Gpu {
  explicit Gpu(int ordinal) {
    CUdevice device = 0;
    CUmodule module = nullptr;
    MUST(cuDeviceGet(&device, ordinal));
    MUST(cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuCtxSetCurrent(context));
    MUST(cuModuleLoadData(&module, kNothing));
    MUST(cuModuleGetFunction(&kernel, module, "nothing"));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuMemAlloc(&memory, kBytes));
  }
  CUcontext context = nullptr;
  CUfunction kernel = nullptr;
  CUstream stream = nullptr;
  CUdeviceptr memory = 0;

  void use() const { MUST(cuCtxSetCurrent(context)); }
  void launch() const {
    MUST(cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, stream, nullptr, nullptr));
  }
  void launch_with_priority() const {
    CUlaunchAttribute priority{};
    priority.id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
    CUlaunchConfig config{};
    config.gridDimX = config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = 32;
    config.blockDimY = config.blockDimZ = 1;
    config.hStream = stream;
    config.attrs = &priority;
    config.numAttrs = 1;
    MUST(cuLaunchKernelEx(&config, kernel, nullptr, nullptr));
  }
  void write(CUdeviceptr word) const { MUST(cuStreamWriteValue32(stream, word, 1, 0)); }
  void wait(CUdeviceptr word) const {
    MUST(cuStreamWaitValue32(stream, word, 0, CU_STREAM_WAIT_VALUE_GEQ));
  }
  void wait_and_write(CUdeviceptr word) const {
    CUstreamBatchMemOpParams steps[2]{};
    steps[0].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    steps[0].waitValue.address = word;
    steps[0].waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
    steps[1].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    steps[1].writeValue.address = word + 8;
    steps[1].writeValue.value = 1;
    MUST(cuStreamBatchMemOp(stream, 2, steps, 0));
  }
};

void print(const char* when, std::vector<double>& values) {
  std::sort(values.begin(), values.end());
  std::printf("  %s %.2f (%.2f-%.2f)", when, values[values.size() / 2], values.front(),
              values[values.size() * 9 / 10]);
}

class Calls {
 public:
  Calls() {
    MUST(cuMemHostAlloc(&host_, kBytes, CU_MEMHOSTALLOC_PORTABLE));
    MUST(cuMemHostGetDevicePointer(&word_, host_, 0));
    target_.use();
  }

  void measure_all() {
    measure("cuStreamWriteValue32", [&] { target_.write(word_); });
    measure("cuStreamWaitValue32", [&] { target_.wait(word_); });
    measure("cuStreamBatchMemOp, both", [&] { target_.wait_and_write(word_); });
    measure("cuLaunchKernel", [&] { target_.launch(); });
    measure("cuLaunchKernelEx, priority", [&] { target_.launch_with_priority(); });
    measure("cuMemcpyHtoDAsync, 16 MiB",
            [&] { MUST(cuMemcpyHtoDAsync(target_.memory, host_, kBytes, target_.stream)); });
    measure("cuPointerGetAttribute", [&] {
      unsigned type = 0;
      MUST(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, target_.memory));
    });
    measure("a transfer by kernels, 2 paths", [&] { transfer(); });
  }

 private:
  // As src/multipath/kernel_mover.cpp enqueues it.
  void transfer() {
    target_.write(word_);
    target_.launch_with_priority();
    relay_.use();
    relay_.wait(word_);
    relay_.launch();
    relay_.write(word_ + 4);
    target_.use();
    target_.wait_and_write(word_ + 4);
  }

  void measure(const char* name, const std::function<void()>& call) {
    std::vector<double> first, next;
    for (int round = 0; round < kRounds; ++round) {
      for (int i = 0; i < kCallsOfRound; ++i) {
        const double begin_us = now_us();
        call();
        (i == 0 ? first : next).push_back(now_us() - begin_us);
      }
      for (const Gpu* gpu : {&relay_, &target_}) {
        gpu->use();
        MUST(cuStreamSynchronize(gpu->stream));
      }
    }
    std::printf("%-32s", name);
    print("next", next);
    print("first", first);
    std::printf(" us\n");
  }

  Gpu relay_{1};
  Gpu target_{0};
  void* host_ = nullptr;
  CUdeviceptr word_ = 0;
};

}  // namespace

int main() {
  MUST(cuInit(0));
  Calls().measure_all();
}
