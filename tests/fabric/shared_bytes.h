// Host memory that was allocated to be shared, for tests.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "fabric/local/shared_memory.h"
#include "fabric/wires.h"

namespace braid::fabric::test {

class SharedHostBytes final : public Memory {
 public:
  explicit SharedHostBytes(size_t size_bytes)
      : memory_(local::SharedMemory::allocate(size_bytes).value()) {}
  MutableBytes bytes() override { return memory_->bytes(); }
  std::vector<std::byte> get() const override {
    return {memory_->bytes().begin(), memory_->bytes().end()};
  }
  std::byte first() const override { return memory_->bytes().front(); }
  void put(const std::vector<std::byte>& bytes) override {
    std::copy(bytes.begin(), bytes.end(), memory_->bytes().begin());
  }

 private:
  std::unique_ptr<local::SharedMemory> memory_;
};

}  // namespace braid::fabric::test
