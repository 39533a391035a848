// What tests' own kernels on the emulated server have in common (cuda/kernels/twin.h).
#pragma once

#include <cstdint>
#include <memory>

#include "cuda/kernels/twin.h"

namespace braid::test {

/// A thread block of a kernel whose one argument is an `Arguments`. What derives from it says what
/// a step does.
template <typename Arguments>
class TestBlock : public cuda::TwinBlock {
 public:
  using Args = Arguments;
  explicit TestBlock(const Args& args) : args_(args) {}

 protected:
  Args args_;
};

/// The kernel that is made of such blocks.
template <typename Block>
constexpr cuda::Twin twin_of(const char* kernel_name) {
  using Args = typename Block::Args;
  const auto make = [](const void* args, uint32_t) -> std::unique_ptr<cuda::TwinBlock> {
    return std::make_unique<Block>(*static_cast<const Args*>(args));
  };
  return {kernel_name, sizeof(Args), make};
}

}  // namespace braid::test
