// client_short_of_memory BYTES: copies to GPU 0, then wants BYTES more of GPU 1 than it has free.
// Prints what the driver answers.
#include <cstdlib>

#include "client.h"

int main(int, char** words) {
  using namespace client;
  constexpr size_t kSizeBytes = size_t{64} << 20;
  require(use_lookup("dlsym"), "no driver");
  use_gpu(0);
  const uint8_t* host = pin(kSizeBytes);
  call("cuMemcpyHtoD_v2", allocate(kSizeBytes), static_cast<const void*>(host), kSizeBytes);
  use_gpu(1);
  size_t free_bytes = 0, total_bytes = 0;
  call("cuMemGetInfo_v2", &free_bytes, &total_bytes);
  CUdeviceptr memory = 0;
  const size_t wanted = free_bytes + std::strtoull(words[1], nullptr, 10);
  std::printf("%d\n", get<CUresult(CUdeviceptr*, size_t)>("cuMemAlloc_v2")(&memory, wanted));
  return 0;
}
