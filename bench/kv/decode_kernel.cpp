#include "bench/kv/decode_kernel.h"

#include <cstring>

#include "cuda/kernels/twin.h"

extern "C" const unsigned char rotation_decode_kernel[];  // decode_kernel.cu

namespace braid::bench {
namespace {

using cuda::TwinStep;

// The first block moves all bytes onto themselves: that takes the time of reading them.
class DecodeBlock final : public cuda::TwinBlock {
 public:
  DecodeBlock(const DecodeArgs& args, uint32_t index) : args_(args), is_done_(index > 0) {}
  TwinStep step(cuda::TwinMemory& /*memory*/) override {
    if (is_done_) return {.kind = TwinStep::Kind::kExit};
    is_done_ = true;
    return {.kind = TwinStep::Kind::kMove,
            .source = args_.from,
            .destination = args_.from,
            .size_bytes = args_.size_bytes};
  }

 private:
  const DecodeArgs args_;
  bool is_done_;
};

std::unique_ptr<cuda::TwinBlock> make_block(const void* args, uint32_t block_index) {
  DecodeArgs own;
  std::memcpy(&own, args, sizeof own);
  return std::make_unique<DecodeBlock>(own, block_index);
}

constexpr cuda::Twin kTwins[] = {{kDecodeKernelName, sizeof(DecodeArgs), make_block}};

}  // namespace

const void* decode_image() { return rotation_decode_kernel; }

const void* decode_twin_image() {
  static const cuda::TwinImage image{.twins = kTwins, .count = 1};
  return &image;
}

}  // namespace braid::bench
