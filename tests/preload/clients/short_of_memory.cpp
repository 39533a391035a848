// client_short_of_memory BYTES: copies to GPU 0, takes all but 8 MiB of what GPU 1 has free, and
// then wants BYTES there. Prints what the driver answers.
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
  allocate(free_bytes - (size_t{8} << 20));
  CUdeviceptr memory = 0;
  const size_t wanted = std::strtoull(words[1], nullptr, 10);
  std::printf("%d\n", get<CUresult(CUdeviceptr*, size_t)>("cuMemAlloc_v2")(&memory, wanted));
  return 0;
}
