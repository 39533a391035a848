// Host memory that was not made to be shared, for tests.
#pragma once

#include <algorithm>
#include <vector>

#include "fabric/wires.h"

namespace braid::fabric::test {

class HostBytes final : public Memory {
 public:
  explicit HostBytes(size_t size_bytes) : bytes_(size_bytes) {}
  MutableBytes bytes() override { return bytes_; }
  std::vector<std::byte> get() const override { return bytes_; }
  std::byte first() const override { return bytes_.front(); }
  void put(const std::vector<std::byte>& bytes) override {
    std::copy(bytes.begin(), bytes.end(), bytes_.begin());
  }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace braid::fabric::test
