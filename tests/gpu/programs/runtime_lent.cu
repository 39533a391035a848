// A program of CUDA's runtime that was given one GPU: it must hear of that one only.
//   runtime_lent SIZE_BYTES
#include "runtime_program.h"

namespace {

using namespace program;

void print_gpus() {
  int count = 0;
  MUST(cudaGetDeviceCount(&count));
  std::printf("%d GPUs; ", count);
  for (int gpu = 0; gpu < count; ++gpu) {
    cudaDeviceProp properties{};
    MUST(cudaGetDeviceProperties(&properties, gpu));
    std::printf("%s %x:%x, %zu bytes, ", properties.name, properties.pciBusID,
                properties.pciDeviceID, properties.totalGlobalMem);
    for (const char byte : properties.uuid.bytes)
      std::printf("%02x", static_cast<unsigned char>(byte));
  }
  const cudaError_t answer = cudaSetDevice(count);
  std::printf("; the next one: %s\n", cudaGetErrorName(answer));
  cudaGetLastError();  // forget it
}

}  // namespace

int main(int argc, char** argv) {
  const size_t size_bytes = size_argument(argc, argv);
  const Pattern pattern(1);
  print_gpus();
  MUST(cudaSetDevice(0));
  const cudaStream_t stream = new_stream();
  unsigned char* source = pin(size_bytes, pattern);
  unsigned char* landing = pin(size_bytes);
  unsigned char* device = allocate(size_bytes);
  for (int round = 0; round < 4; ++round) {
    std::memset(landing, 0, size_bytes);
    to_device(device, source, size_bytes, stream);
    to_host(landing, device, size_bytes, stream);
    MUST(cudaStreamSynchronize(stream));
    pattern.check(landing, size_bytes, "a copy on the one GPU");
  }
  print_gpus();
  print_counts();
  return 0;
}
