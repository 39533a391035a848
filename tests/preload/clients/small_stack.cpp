// small_stack SIGNAL: copies, and takes the signal on an alternate stack as Rust gives one to each
// of its threads: as small as the C library allows, with a page before it that may not be touched.
#include <signal.h>
#include <sys/auxv.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>

#include "client.h"

namespace {

using namespace client;

void use_small_stack() {
  constexpr size_t kPageBytes = 4096, kLeastBytes = 8192;
  const size_t size_bytes = std::max<size_t>(kLeastBytes, getauxval(AT_MINSIGSTKSZ));
  auto* memory =
      static_cast<uint8_t*>(mmap(nullptr, kPageBytes + size_bytes, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  require(memory != MAP_FAILED && mprotect(memory, kPageBytes, PROT_NONE) == 0, "no memory");
  stack_t stack{};
  stack.ss_sp = memory + kPageBytes;
  stack.ss_size = size_bytes;
  require(sigaltstack(&stack, nullptr) == 0, "no alternate stack");
}

}  // namespace

int main(int, char** words) {
  constexpr size_t kSizeBytes = size_t{64} << 20;
  use_small_stack();
  require(use_lookup("dlsym"), "no driver");
  use_gpu(0);
  const uint8_t* host = pin(kSizeBytes);
  call("cuMemcpyHtoD_v2", allocate(kSizeBytes), static_cast<const void*>(host), kSizeBytes);
  raise(std::atoi(words[1]));
  std::puts("it goes on");
  return 0;
}
