// The host twins of gate.cu.
#include "cuda/kernels/gate.h"

#include "cuda/kernels/twins.h"

namespace braid::cuda {
namespace {

class GateBlock final : public TwinBlock {
 public:
  explicit GateBlock(const GateArgs& args) : args_(args) {}

  TwinStep step(TwinMemory& memory) override {
    const bool is_open = static_cast<int32_t>(memory.load(args_.word) - args_.generation) >= 0;
    return {.kind = is_open ? TwinStep::Kind::kExit : TwinStep::Kind::kPoll};
  }

 private:
  GateArgs args_;
};

class FailBlock final : public TwinBlock {
 public:
  TwinStep step(TwinMemory& /*memory*/) override { return {.kind = TwinStep::Kind::kTrap}; }
};

}  // namespace

std::unique_ptr<TwinBlock> make_gate_block(const void* args, uint32_t /*block_index*/) {
  return std::make_unique<GateBlock>(*static_cast<const GateArgs*>(args));
}

std::unique_ptr<TwinBlock> make_fail_block(const void* /*args*/, uint32_t /*block_index*/) {
  return std::make_unique<FailBlock>();
}

}  // namespace braid::cuda
