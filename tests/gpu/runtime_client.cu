// An ordinary CUDA runtime program, built by plain nvcc with the static runtime: copies pinned
// memory to GPU 0 and back, verifies every byte, prints one JSON line a size and direction.
//   runtime_client SIZE_BYTES...
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

static void must(cudaError_t result, const char* call) {
  if (result == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", call, cudaGetErrorString(result));
  std::exit(1);
}
#define MUST(call) must(call, #call)

static constexpr int kRounds = 9;

static double median_gbps(std::vector<double>& readings) {
  std::sort(readings.begin(), readings.end());
  return readings[readings.size() / 2];
}

int main(int argc, char** argv) {
  uint64_t largest = 0;
  for (int i = 1; i < argc; ++i)
    largest = std::max<uint64_t>(largest, std::strtoull(argv[i], nullptr, 10));
  uint64_t *sources[2] = {}, *landing = nullptr;
  void* device = nullptr;
  for (uint64_t*& source : sources) MUST(cudaMallocHost(&source, largest + 8));
  MUST(cudaMallocHost(&landing, largest + 8));
  MUST(cudaMalloc(&device, largest + 8));
  std::mt19937_64 random(42);
  for (uint64_t* source : sources)
    for (uint64_t i = 0; i <= largest / 8; ++i) source[i] = random();
  cudaStream_t stream;
  cudaEvent_t begin, end;
  MUST(cudaStreamCreate(&stream));
  MUST(cudaEventCreate(&begin));
  MUST(cudaEventCreate(&end));
  std::memset(landing, 0xA5, largest);
  bool all_right = true;
  for (int i = 1; i < argc; ++i) {
    const uint64_t size = std::strtoull(argv[i], nullptr, 10);
    for (const cudaMemcpyKind kind : {cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost}) {
      const bool to_device = kind == cudaMemcpyHostToDevice;
      std::vector<double> readings;
      bool right = true;
      for (int round = 0; round <= kRounds; ++round) {
        // Two sources by turns: what was there before is wrong, and no CPU write dirties the
        // caches.
        const uint64_t* source = sources[round % 2];
        if (!to_device) MUST(cudaMemcpy(device, source, size, cudaMemcpyHostToDevice));
        MUST(cudaDeviceSynchronize());
        MUST(cudaEventRecord(begin, stream));
        MUST(cudaMemcpyAsync(to_device ? device : landing, to_device ? source : device, size, kind,
                             stream));
        MUST(cudaEventRecord(end, stream));
        MUST(cudaStreamSynchronize(stream));
        float elapsed_ms = 0;
        MUST(cudaEventElapsedTime(&elapsed_ms, begin, end));
        if (round > 0) readings.push_back(size / (elapsed_ms * 1e6));
        if (to_device) MUST(cudaMemcpy(landing, device, size, cudaMemcpyDeviceToHost));
        right = right && std::memcmp(landing, source, size) == 0;
      }
      std::printf(
          "{\"direction\": \"%s\", \"size_bytes\": %llu, \"gbps\": %.2f, \"verified\": %s}\n",
          to_device ? "h2d" : "d2h", (unsigned long long)size, median_gbps(readings),
          right ? "true" : "false");
      all_right = all_right && right;
    }
  }
  return all_right ? 0 : 1;
}
