// Blocks streams, enqueues, releases, as nvbandwidth does to time copies: what is enqueued must not
// wait for what has not been released, and everything must then happen in order.
//   block_release SIZE_BYTES      streams that wait for a value
//   spin_release SIZE_BYTES       the same with kernels that spin
#include <memory>

#include "driver_program.h"
#include "gate.h"

namespace {

using namespace program;

constexpr int kCopies = 24;

bool is_done(CUresult answer, const char* what) {
  require(answer == CUDA_SUCCESS || answer == CUDA_ERROR_NOT_READY, what);
  return answer == CUDA_SUCCESS;
}

// One stream: every second copy brings back what the one before it took there.
void one_stream(size_t size_bytes) {
  volatile uint32_t* gate = new_gate();
  const CUstream stream = new_stream();
  const CUevent before = new_event(), begin = new_event(), end = new_event();
  const Pattern pattern(1);
  unsigned char* first = pin(size_bytes, pattern);
  unsigned char* second = pin(size_bytes);
  const CUdeviceptr device = allocate(size_bytes);

  MUST(cuEventRecord(before, stream));
  hold(stream, gate);
  MUST(cuEventRecord(begin, stream));
  for (int copy = 0; copy < kCopies; copy += 4) {
    to_device(device, first, size_bytes, stream);
    to_host(second, device, size_bytes, stream);
    MUST(cuMemsetD8Async(device, 0x5a, size_bytes, stream));
    to_device(device, second, size_bytes, stream);
    to_host(first, device, size_bytes, stream);
  }
  MUST(cuEventRecord(end, stream));

  MUST(cuEventSynchronize(before));
  sleep_ms(50);
  require(!is_done(cuEventQuery(begin), "query"), "an event behind the gate has passed");
  require(!is_done(cuEventQuery(end), "query"), "the last event has passed a closed gate");
  require(!is_done(cuStreamQuery(stream), "query"), "the stream has passed a closed gate");
  std::memset(second, 0, size_bytes);  // nothing has been read or written yet
  store(gate, 1);
  MUST(cuEventSynchronize(end));
  require(is_done(cuStreamQuery(stream), "query"), "the stream is behind its last event");
  pattern.check(second, size_bytes, "the host's second buffer");
  pattern.check(first, size_bytes, "the host's first buffer");
  check_device(device, size_bytes, pattern, "the device");
  float elapsed_ms = 0;
  MUST(cuEventElapsedTime(&elapsed_ms, begin, end));
  require(elapsed_ms > 0, "the copies took no time");
}

struct Gpu {
  CUcontext context;
  CUstream in, out;  // two streams, so that both directions are under way at once
  CUdeviceptr device;
  unsigned char* landing;
  CUevent arrived, left;
};

// A chain through every GPU: what leaves one arrives at the next. All of it waits for one gate.
void every_gpu(const std::vector<CUcontext>& contexts, size_t size_bytes) {
  volatile uint32_t* gate = new_gate();
  const Pattern pattern(2);
  unsigned char* source = pin(size_bytes, pattern);
  std::vector<Gpu> gpus;
  for (const CUcontext context : contexts) {
    MUST(cuCtxSetCurrent(context));
    gpus.push_back({context, new_stream(), new_stream(), allocate(size_bytes), pin(size_bytes),
                    new_event(), new_event()});
    std::memset(gpus.back().landing, 0, size_bytes);
  }
  for (Gpu& gpu : gpus) {
    MUST(cuCtxSetCurrent(gpu.context));
    hold(gpu.in, gate);
    hold(gpu.out, gate);
  }
  for (int round = 0; round < 3; ++round) {
    const unsigned char* from = source;
    CUevent ready = round > 0 ? gpus.back().left : nullptr;
    for (Gpu& gpu : gpus) {
      MUST(cuCtxSetCurrent(gpu.context));
      if (ready != nullptr) MUST(cuStreamWaitEvent(gpu.in, ready, 0));
      to_device(gpu.device, from, size_bytes, gpu.in);
      MUST(cuEventRecord(gpu.arrived, gpu.in));
      MUST(cuStreamWaitEvent(gpu.out, gpu.arrived, 0));
      to_host(gpu.landing, gpu.device, size_bytes, gpu.out);
      MUST(cuMemsetD8Async(gpu.device, round, size_bytes, gpu.out));
      MUST(cuEventRecord(gpu.left, gpu.out));
      from = gpu.landing;
      ready = gpu.left;
    }
  }
  sleep_ms(20);
  for (Gpu& gpu : gpus) {
    MUST(cuCtxSetCurrent(gpu.context));
    require(!is_done(cuStreamQuery(gpu.out), "query"), "a GPU has passed a closed gate");
    require(gpu.landing[0] == 0, "bytes have passed a closed gate");
  }
  store(gate, 1);
  for (Gpu& gpu : gpus) {
    MUST(cuCtxSetCurrent(gpu.context));
    MUST(cuStreamSynchronize(gpu.out));
    pattern.check(gpu.landing, size_bytes, "a link of the chain");
  }
}

// Another GPU's stream is held, with copies behind the gate: GPU 0's copies must not wait for it.
void another_gpu(const std::vector<CUcontext>& contexts, size_t size_bytes) {
  volatile uint32_t* gate = new_gate();
  const Pattern held(3), free(4);
  unsigned char* held_source = pin(size_bytes, held);
  unsigned char* free_source = pin(size_bytes, free);
  unsigned char* landing = pin(size_bytes);
  MUST(cuCtxSetCurrent(contexts.back()));
  const CUdeviceptr there = allocate(size_bytes);
  const CUstream held_stream = new_stream();
  hold(held_stream, gate);
  for (int copy = 0; copy < 4; ++copy) to_device(there, held_source, size_bytes, held_stream);

  MUST(cuCtxSetCurrent(contexts.front()));
  const CUdeviceptr here = allocate(size_bytes);
  const CUstream stream = new_stream();
  for (int copy = 0; copy < 4; ++copy) {
    std::memset(landing, 0, size_bytes);
    to_device(here, free_source, size_bytes, stream);
    to_host(landing, here, size_bytes, stream);
    MUST(cuStreamSynchronize(stream));
    free.check(landing, size_bytes, "beside a held GPU");
  }
  MUST(cuCtxSetCurrent(contexts.back()));
  require(!is_done(cuStreamQuery(held_stream), "query"), "the held GPU has passed a closed gate");
  store(gate, 1);
  MUST(cuStreamSynchronize(held_stream));
  check_device(there, size_bytes, held, "the GPU that was held");
}

}  // namespace

int main(int argc, char** argv) {
  const size_t size_bytes = size_argument(argc, argv);
  const std::vector<CUcontext> contexts = use_gpus();
  for (auto context = contexts.rbegin(); context != contexts.rend(); ++context) {
    MUST(cuCtxSetCurrent(*context));
    prepare_gate();
  }
  one_stream(size_bytes);
  every_gpu(contexts, size_bytes);
  if (contexts.size() > 1) another_gpu(contexts, size_bytes);
  print_counts();
  return 0;
}
