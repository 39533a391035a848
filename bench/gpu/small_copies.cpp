// A program of small copies, which braid leaves to the driver: what they cost natively, and under
// `braid run`. Each line of stdin asks for one measurement, and gets one line of JSON:
//
//   h2d SIZE_BYTES COUNT  ->  {"gbps": of COUNT copies in a row on one stream, by events,
//                              "issue_ns": of the CPU for one call, while the stream has room}
//
// Knows nothing of braid. Linked with -lcuda as programs are: whichever driver the loader finds.
#include <cuda.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

constexpr size_t kBufferBytes = 64 << 20;
// More at once may wait for a place in the stream's queue.
constexpr int kIssuedAtOnce = 128;

void must(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  const char* name = nullptr;
  cuGetErrorName(result, &name);
  std::fprintf(stderr, "small_copies: %s: %s\n", call, name != nullptr ? name : "?");
  std::exit(1);
}
#define MUST(call) must(call, #call)

struct Buffers {
  unsigned char* host = nullptr;
  CUdeviceptr device = 0;
  CUstream stream = nullptr;
};

// Each copy goes to the next place, so that none waits for the one before but by its stream.
void copy(const Buffers& buffers, bool to_device, size_t size_bytes, size_t number) {
  const size_t at = number * size_bytes % (kBufferBytes - size_bytes + 1) / 256 * 256;
  if (to_device)
    MUST(cuMemcpyHtoDAsync(buffers.device + at, buffers.host + at, size_bytes, buffers.stream));
  else
    MUST(cuMemcpyDtoHAsync(buffers.host + at, buffers.device + at, size_bytes, buffers.stream));
}

double measure_gbps(const Buffers& buffers, bool to_device, size_t size_bytes, size_t count) {
  CUevent begin = nullptr, end = nullptr;
  MUST(cuEventCreate(&begin, CU_EVENT_DEFAULT));
  MUST(cuEventCreate(&end, CU_EVENT_DEFAULT));
  MUST(cuEventRecord(begin, buffers.stream));
  for (size_t number = 0; number < count; ++number) copy(buffers, to_device, size_bytes, number);
  MUST(cuEventRecord(end, buffers.stream));
  MUST(cuStreamSynchronize(buffers.stream));
  float elapsed_ms = 0;
  MUST(cuEventElapsedTime(&elapsed_ms, begin, end));
  MUST(cuEventDestroy(begin));
  MUST(cuEventDestroy(end));
  return static_cast<double>(size_bytes) * static_cast<double>(count) / (elapsed_ms * 1e6);
}

double measure_issue_ns(const Buffers& buffers, bool to_device, size_t size_bytes, size_t count) {
  std::chrono::nanoseconds spent{};
  size_t number = 0;
  while (number < count) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kIssuedAtOnce; ++i) copy(buffers, to_device, size_bytes, number++);
    spent += std::chrono::steady_clock::now() - begin;
    MUST(cuStreamSynchronize(buffers.stream));
  }
  return static_cast<double>(spent.count()) / static_cast<double>(number);
}

// Everything went there and back: the host's bytes are those that it had.
bool verify(const Buffers& buffers) {
  std::vector<unsigned char> seen(kBufferBytes);
  MUST(cuMemcpyHtoD(buffers.device, buffers.host, kBufferBytes));
  MUST(cuMemcpyDtoH(seen.data(), buffers.device, kBufferBytes));
  for (size_t at = 0; at < kBufferBytes; ++at)
    if (buffers.host[at] != static_cast<unsigned char>(at * 2654435761u >> 24)) return false;
  return std::memcmp(seen.data(), buffers.host, kBufferBytes) == 0;
}

Buffers open() {
  Buffers buffers;
  CUcontext context = nullptr;
  void* host = nullptr;
  MUST(cuInit(0));
  MUST(cuDevicePrimaryCtxRetain(&context, 0));
  MUST(cuCtxSetCurrent(context));
  MUST(cuMemHostAlloc(&host, kBufferBytes, CU_MEMHOSTALLOC_PORTABLE));
  MUST(cuMemAlloc(&buffers.device, kBufferBytes));
  MUST(cuStreamCreate(&buffers.stream, CU_STREAM_NON_BLOCKING));
  buffers.host = static_cast<unsigned char*>(host);
  for (size_t at = 0; at < kBufferBytes; ++at)
    buffers.host[at] = static_cast<unsigned char>(at * 2654435761u >> 24);
  MUST(cuMemcpyHtoD(buffers.device, buffers.host, kBufferBytes));
  return buffers;
}

}  // namespace

int main() {
  const Buffers buffers = open();
  std::printf("{\"ready\": true}\n");
  std::fflush(stdout);
  char direction[8];
  size_t size_bytes = 0, count = 0;
  while (std::scanf("%7s %zu %zu", direction, &size_bytes, &count) == 3) {
    if (size_bytes == 0 || size_bytes > kBufferBytes || count == 0) return 1;
    const bool to_device = std::strcmp(direction, "h2d") == 0;
    const double gbps = measure_gbps(buffers, to_device, size_bytes, count);
    const double issue_ns = measure_issue_ns(buffers, to_device, size_bytes, count);
    std::printf("{\"gbps\": %.3f, \"issue_ns\": %.1f}\n", gbps, issue_ns);
    std::fflush(stdout);
  }
  if (verify(buffers)) return 0;
  std::fprintf(stderr, "small_copies: wrong bytes\n");
  return 1;
}
