// The order of copies and of the program's own kernels, through CUDA's runtime: blocked and
// released as nvbandwidth does it, recorded in graphs, asked after, and reset in the middle.
//   runtime_order SIZE_BYTES
#include <sys/mman.h>

#include "runtime_program.h"

namespace {

using namespace program;

__global__ void spin(const volatile unsigned* gate) {
  while (*gate == 0) __nanosleep(1000);
}

__global__ void add_one(unsigned char* bytes, size_t size_bytes) {
  for (size_t at = blockIdx.x * size_t{blockDim.x} + threadIdx.x; at < size_bytes;
       at += size_t{gridDim.x} * blockDim.x)
    bytes[at] = static_cast<unsigned char>(bytes[at] + 1);
}

void check_plus(const unsigned char* bytes, size_t size_bytes, const Pattern& pattern, int added,
                const char* what) {
  std::vector<unsigned char> before(bytes, bytes + size_bytes);
  for (unsigned char& byte : before) byte = static_cast<unsigned char>(byte - added);
  pattern.check(before.data(), size_bytes, what);
}

struct Gpu {
  cudaStream_t in, out;
  unsigned char* device;
  unsigned char* landing;
  cudaEvent_t begin, arrived, end;
};

// On every GPU and in both directions: blocked, enqueued, released.
void block_and_release(int gpus, size_t size_bytes) {
  constexpr int kRounds = 8;
  const Pattern pattern(1);
  unsigned char* source = pin(size_bytes, pattern);
  auto* gate = reinterpret_cast<volatile unsigned*>(pin(sizeof(unsigned)));
  *gate = 1;
  std::vector<Gpu> all;
  for (int gpu = 0; gpu < gpus; ++gpu) {
    MUST(cudaSetDevice(gpu));
    all.push_back({new_stream(), new_stream(), allocate(size_bytes), pin(size_bytes), new_event(),
                   new_event(), new_event()});
    std::memset(all.back().landing, 0, size_bytes);
    // Drivers load a kernel's code when it is first launched, which waits for the GPU.
    spin<<<1, 1, 0, all.back().in>>>(const_cast<unsigned*>(gate));
    add_one<<<1, 32, 0, all.back().in>>>(all.back().device, 0);
    MUST(cudaGetLastError());
    MUST(cudaDeviceSynchronize());
  }
  store(gate, 0);
  for (int gpu = 0; gpu < gpus; ++gpu) {
    MUST(cudaSetDevice(gpu));
    const Gpu& one = all[static_cast<size_t>(gpu)];
    spin<<<1, 1, 0, one.in>>>(const_cast<unsigned*>(gate));
    MUST(cudaGetLastError());
    MUST(cudaEventRecord(one.begin, one.in));
    for (int round = 0; round < kRounds; ++round) {
      to_device(one.device, source, size_bytes, one.in);
      add_one<<<256, 256, 0, one.in>>>(one.device, size_bytes);
      MUST(cudaGetLastError());
      MUST(cudaEventRecord(one.arrived, one.in));
      MUST(cudaStreamWaitEvent(one.out, one.arrived, 0));
      to_host(one.landing, one.device, size_bytes, one.out);
      MUST(cudaEventRecord(one.end, one.out));
      MUST(cudaStreamWaitEvent(one.in, one.end, 0));
    }
  }
  sleep_ms(20);
  for (int gpu = 0; gpu < gpus; ++gpu) {
    const Gpu& one = all[static_cast<size_t>(gpu)];
    require(cudaEventQuery(one.begin) == cudaErrorNotReady, "an event has passed a closed gate");
    require(cudaEventQuery(one.end) == cudaErrorNotReady, "copies have passed a closed gate");
    require(one.landing[0] == 0, "bytes have passed a closed gate");
  }
  store(gate, 1);
  for (int gpu = 0; gpu < gpus; ++gpu) {
    const Gpu& one = all[static_cast<size_t>(gpu)];
    MUST(cudaEventSynchronize(one.end));
    check_plus(one.landing, size_bytes, pattern, 1, "blocked and released");
    float elapsed_ms = 0;
    MUST(cudaEventElapsedTime(&elapsed_ms, one.begin, one.end));
    require(elapsed_ms > 0, "the copies took no time");
  }
  MUST(cudaSetDevice(0));
}

// Another GPU is as full as kernels can make it: copies to GPU 0 do without its link.
void beside_a_full_gpu(int gpus, size_t size_bytes) {
  auto* gate = reinterpret_cast<volatile unsigned*>(pin(sizeof(unsigned)));
  *gate = 0;
  const Pattern pattern(2);
  unsigned char* source = pin(size_bytes, pattern);
  unsigned char* landing = pin(size_bytes);
  unsigned char* device = allocate(size_bytes);
  const cudaStream_t stream = new_stream();
  MUST(cudaSetDevice(gpus - 1));
  int processors = 0;
  MUST(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, gpus - 1));
  const cudaStream_t full = new_stream();
  spin<<<4 * processors, 1024, 0, full>>>(const_cast<unsigned*>(gate));
  MUST(cudaGetLastError());
  MUST(cudaSetDevice(0));
  for (int round = 0; round < 3; ++round) {
    std::memset(landing, 0, size_bytes);
    to_device(device, source, size_bytes, stream);
    to_host(landing, device, size_bytes, stream);
    MUST(cudaStreamSynchronize(stream));
    pattern.check(landing, size_bytes, "beside a full GPU");
  }
  require(cudaStreamQuery(full) == cudaErrorNotReady, "the full GPU has gone on");
  store(gate, 1);
  MUST(cudaStreamSynchronize(full));
}

// Copies and kernels in a graph, launched beside plain copies.
void graphs(size_t size_bytes) {
  const Pattern pattern(3), plain_pattern(4);
  const cudaStream_t stream = new_stream(), plain = new_stream();
  unsigned char* source = pin(size_bytes, pattern);
  unsigned char* landing = pin(size_bytes);
  unsigned char* plain_source = pin(size_bytes, plain_pattern);
  unsigned char* plain_landing = pin(size_bytes);
  unsigned char* device = allocate(size_bytes);
  unsigned char* plain_device = allocate(size_bytes);
  for (const cudaStreamCaptureMode mode :
       {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal,
        cudaStreamCaptureModeRelaxed}) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    MUST(cudaStreamBeginCapture(stream, mode));
    to_device(device, source, size_bytes, stream, Kind::kCaptured);
    add_one<<<256, 256, 0, stream>>>(device, size_bytes);
    to_host(landing, device, size_bytes, stream, Kind::kCaptured);
    MUST(cudaStreamEndCapture(stream, &graph));
    MUST(cudaGraphInstantiate(&executable, graph, 0));
    for (int launch = 0; launch < 3; ++launch) {
      std::memset(landing, 0, size_bytes);
      MUST(cudaGraphLaunch(executable, stream));
      to_device(plain_device, plain_source, size_bytes, plain);
      to_host(plain_landing, plain_device, size_bytes, plain);
      MUST(cudaStreamSynchronize(stream));
      check_plus(landing, size_bytes, pattern, 1, "a graph's copies");
      MUST(cudaStreamSynchronize(plain));
      plain_pattern.check(plain_landing, size_bytes, "beside a graph");
    }
    MUST(cudaGraphExecDestroy(executable));
    MUST(cudaGraphDestroy(graph));
  }
}

// The stream is gone as soon as it has its copies; its bytes are there when a query says so.
void queries(size_t size_bytes) {
  unsigned char* source = pin(size_bytes);
  unsigned char* landing = pin(size_bytes);
  unsigned char* device = allocate(size_bytes);
  const cudaEvent_t event = new_event();
  for (uint64_t round = 0; round < 5; ++round) {
    const Pattern pattern(10 + round);
    pattern.fill(source, size_bytes);
    std::memset(landing, 0, size_bytes);
    const cudaStream_t stream = new_stream();
    to_device(device, source, size_bytes, stream);
    to_host(landing, device, size_bytes, stream);
    MUST(cudaEventRecord(event, stream));
    MUST(cudaStreamDestroy(stream));
    cudaError_t answer = cudaEventQuery(event);
    while (answer == cudaErrorNotReady) answer = cudaEventQuery(event);
    MUST(answer);
    pattern.check(landing, size_bytes, "when an event's query succeeds");
  }
}

// The device is reset with copies in flight, by memory that outlives it: nobody writes there any
// more, and the program goes on.
void reset(int gpus, size_t size_bytes) {
  MUST(cudaSetDevice(gpus - 1));
  unsigned char* host = pin(size_bytes);
  MUST(cudaSetDevice(0));
  unsigned char* device = allocate(size_bytes);
  const cudaStream_t stream = new_stream();
  for (int copy = 0; copy < 6; ++copy) {
    to_device(device, host, size_bytes, stream);
    to_host(host, device, size_bytes, stream);
  }
  MUST(cudaDeviceReset());
  const Pattern quiet(20), pattern(21);
  quiet.fill(host, size_bytes);
  sleep_ms(100);
  quiet.check(host, size_bytes, "behind a reset");
  unsigned char* source = pin(size_bytes, pattern);
  device = allocate(size_bytes);
  const cudaStream_t again = new_stream();
  to_device(device, source, size_bytes, again);
  to_host(host, device, size_bytes, again);
  MUST(cudaStreamSynchronize(again));
  pattern.check(host, size_bytes, "after a reset");
}

}  // namespace

int main(int argc, char** argv) {
  const size_t size_bytes = size_argument(argc, argv);
  int gpus = 0;
  MUST(cudaGetDeviceCount(&gpus));
  block_and_release(gpus, size_bytes);
  if (gpus > 1) beside_a_full_gpu(gpus, size_bytes);
  graphs(size_bytes);
  queries(size_bytes);
  if (gpus > 1) reset(gpus, size_bytes);
  print_counts();
  return 0;
}
