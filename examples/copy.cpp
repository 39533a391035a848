// braid from C++: one large copy each way on a stream of ours, timed with events, every byte
// verified. Ends with the share of each path.
//
//   copy [MEGABYTES]
#include <braid/copy.h>
#include <cuda.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <utility>

namespace {

[[noreturn]] void die(const std::string& what) {
  std::fprintf(stderr, "copy: %s\n", what.c_str());
  std::exit(1);
}

void check(CUresult result, const char* doing) {
  if (result != CUDA_SUCCESS) die(std::string(doing) + ": error " + std::to_string(result));
}
#define CHECK(call) check(call, #call)

void fill_random(void* memory, size_t size_bytes) {
  std::mt19937_64 random(1);
  auto* words = static_cast<uint64_t*>(memory);
  for (size_t index = 0; index < size_bytes / sizeof(uint64_t); ++index) words[index] = random();
}

// Runs one copy between two events, and says how fast it was and which way it went.
template <typename Copy>
void measure(const char* name, size_t size_bytes, CUstream stream, const Copy& copy) {
  CUevent begin = nullptr;
  CUevent end = nullptr;
  CHECK(cuEventCreate(&begin, CU_EVENT_DEFAULT));
  CHECK(cuEventCreate(&end, CU_EVENT_DEFAULT));
  CHECK(cuEventRecord(begin, stream));
  const braid::Result<braid::Copied> copied = copy();
  if (!copied.ok()) die(copied.status().message());
  CHECK(cuEventRecord(end, stream));
  CHECK(cuStreamSynchronize(stream));
  float elapsed_ms = 0;
  CHECK(cuEventElapsedTime(&elapsed_ms, begin, end));
  std::printf("%s: %.1f GB/s, %s\n", name, static_cast<double>(size_bytes) / 1e6 / elapsed_ms,
              copied.value().reason);
  CHECK(cuEventDestroy(begin));
  CHECK(cuEventDestroy(end));
}

void copy_both_ways(braid::Engine& engine, size_t size_bytes) {
  void* sent = nullptr;
  void* received = nullptr;
  CUdeviceptr device = 0;
  CUstream stream = nullptr;
  CHECK(cuMemHostAlloc(&sent, size_bytes, CU_MEMHOSTALLOC_PORTABLE));
  CHECK(cuMemHostAlloc(&received, size_bytes, CU_MEMHOSTALLOC_PORTABLE));
  CHECK(cuMemAlloc(&device, size_bytes));
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  fill_random(sent, size_bytes);
  std::memset(received, 0, size_bytes);

  measure("host to device", size_bytes, stream, [&] {
    return engine.copy(braid::at(device), sent, size_bytes, stream, braid::Urgency::kUrgent);
  });
  measure("device to host", size_bytes, stream,
          [&] { return engine.copy(received, braid::at(device), size_bytes, stream); });
  if (std::memcmp(sent, received, size_bytes) != 0) die("wrong bytes");
  std::printf("%zu bytes verified\n", size_bytes);

  CHECK(cuStreamDestroy(stream));
  CHECK(cuMemFree(device));
  CHECK(cuMemFreeHost(received));
  CHECK(cuMemFreeHost(sent));
}

}  // namespace

int main(int argc, char** argv) {
  const size_t size_bytes = (argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 256) << 20;
  if (size_bytes == 0) die("usage: copy [MEGABYTES]");
  CUdevice gpu = 0;
  CUcontext context = nullptr;
  CHECK(cuInit(0));
  CHECK(cuDeviceGet(&gpu, 0));
  CHECK(cuDevicePrimaryCtxRetain(&context, gpu));
  CHECK(cuCtxSetCurrent(context));
  {
    auto opened = braid::Engine::open();
    if (!opened.ok()) die(opened.status().message());
    braid::Engine engine = std::move(opened).value();
    copy_both_ways(engine, size_bytes);
    const auto statistics = engine.statistics();
    if (!statistics.ok()) die(statistics.status().message());
    std::printf("%s\n", statistics.value().c_str());
  }
  CHECK(cuDevicePrimaryCtxRelease(gpu));
  return 0;
}
