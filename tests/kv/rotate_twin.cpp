// The kernel of examples/rotate on the emulated server: the same source, one lane a block.
#include <cstring>
#include <memory>

#include "cuda/kernels/twin.h"
#include "examples/rotate/decoder.h"

namespace {

using braid::cuda::TwinMemory;
using braid::cuda::TwinStep;

struct OneLane {
  TwinMemory& memory;
  uint32_t lane() const { return 0; }
  uint32_t lanes() const { return 1; }
  void sync() const {}
  uint32_t load(uint64_t from) const { return memory.load(from); }
  void store(uint64_t to, uint32_t word) const { memory.store(to, word); }
};

// Computes all of its request at once, then takes the time of a move.
class DecodeBlock final : public braid::cuda::TwinBlock {
 public:
  DecodeBlock(const rotate::StepArgs& args, uint32_t index) : args_(args), index_(index) {}

  TwinStep step(TwinMemory& memory) override {
    if (is_done_) return {.kind = TwinStep::Kind::kExit};
    is_done_ = true;
    rotate::RequestStep request;
    memory.read(args_.requests + index_ * sizeof request, &request, sizeof request);
    OneLane lane{memory};
    auto scratch = std::make_unique<rotate::Scratch>();
    rotate::Decoder<OneLane>(lane, *scratch, args_, request).run();
    return {.kind = TwinStep::Kind::kMove,
            .source = request.tokens,
            .destination = request.tokens,
            .size_bytes = sizeof(uint32_t)};
  }

 private:
  const rotate::StepArgs args_;
  const uint32_t index_;
  bool is_done_ = false;
};

std::unique_ptr<braid::cuda::TwinBlock> make_block(const void* args, uint32_t block_index) {
  rotate::StepArgs own;
  std::memcpy(&own, args, sizeof own);
  return std::make_unique<DecodeBlock>(own, block_index);
}

constexpr braid::cuda::Twin kTwins[] = {
    {rotate::kKernelName, sizeof(rotate::StepArgs), make_block}};

}  // namespace

extern "C" const void* rotate_twin_image() {
  static const braid::cuda::TwinImage image{.twins = kTwins, .count = 1};
  return &image;
}
