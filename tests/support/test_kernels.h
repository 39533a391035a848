// Kernels for tests on the emulated server, which runs their twins: one that spins until a word
// says that it may end, and one that faults.
#pragma once

#include "support/test_block.h"

namespace braid::test {

inline constexpr const char* kSpinKernelName = "test_spin";
inline constexpr const char* kFaultKernelName = "test_fault";

/// The one argument of both; the fault reads none of it.
struct SpinArgs {
  uint64_t word;   ///< uint32_t* that the GPU reads
  uint32_t opens;  ///< ends when the word is this or later, cyclically
  uint32_t unused;
};

class SpinBlock final : public TestBlock<SpinArgs> {
 public:
  using TestBlock::TestBlock;
  cuda::TwinStep step(cuda::TwinMemory& memory) override {
    const bool is_open = static_cast<int32_t>(memory.load(args_.word) - args_.opens) >= 0;
    return {.kind = is_open ? cuda::TwinStep::Kind::kExit : cuda::TwinStep::Kind::kPoll};
  }
};

class FaultBlock final : public TestBlock<SpinArgs> {
 public:
  using TestBlock::TestBlock;
  cuda::TwinStep step(cuda::TwinMemory& /*memory*/) override {
    return {.kind = cuda::TwinStep::Kind::kTrap};
  }
};

/// For cuModuleLoadData.
inline const void* test_kernels() {
  static constexpr cuda::Twin kTwins[] = {twin_of<SpinBlock>(kSpinKernelName),
                                          twin_of<FaultBlock>(kFaultKernelName)};
  static const cuda::TwinImage image{.twins = kTwins, .count = 2};
  return &image;
}

}  // namespace braid::test
