#include "stress/kernel.h"

#include "support/test_block.h"

namespace braid::stress {
namespace {

using cuda::TwinStep;

// One block, a few words at a time: copies that should wait for it have time not to.
class MixBlock final : public test::TestBlock<MixArgs> {
 public:
  using TestBlock::TestBlock;

  TwinStep step(cuda::TwinMemory& memory) override {
    constexpr int kWordsAStep = 16;
    for (int word = 0; word < kWordsAStep; ++word, at_ += kMixStrideBytes) {
      if (at_ + sizeof(uint32_t) > args_.size_bytes) return {.kind = TwinStep::Kind::kExit};
      memory.fetch_add(args_.to + at_, memory.load(args_.from + at_) * 3 + 1);
    }
    // The last word onto itself: a move takes the time of the accesses before it.
    const uint64_t last = args_.to + at_ - kMixStrideBytes;
    return {.kind = TwinStep::Kind::kMove,
            .source = last,
            .destination = last,
            .size_bytes = sizeof(uint32_t)};
  }

 private:
  uint64_t at_ = 0;
};

constexpr cuda::Twin kTwins[] = {test::twin_of<MixBlock>(kMixKernelName)};

}  // namespace

extern "C" const unsigned char stress_kernels[];  // kernel.cu

const void* mix_kernel_image(bool is_emulated) {
  if (!is_emulated) return stress_kernels;
  static const cuda::TwinImage image{.twins = kTwins, .count = 1};
  return &image;
}

}  // namespace braid::stress
