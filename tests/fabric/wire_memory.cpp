#include "fabric/host_bytes.h"
#include "fabric/wires.h"

namespace braid::fabric::test {

std::unique_ptr<Memory> Wire::memory(int side, size_t size_bytes) {
  return host_memory(side, size_bytes);
}

std::unique_ptr<Memory> Wire::host_memory(int, size_t size_bytes) {
  return std::make_unique<HostBytes>(size_bytes);
}

}  // namespace braid::fabric::test
