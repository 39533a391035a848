// Kernels that a test brings: one that writes down when its turn came, one that spins until a word
// says so, one that moves bytes. A context has functions of its own.
#pragma once

#include "fixture.h"
#include "support/test_block.h"

namespace braid::emulator_test {

/// Each block stores how many came before it (`counter`) at `to`.
struct StampArgs {
  uint64_t counter;
  uint64_t to;
};
/// Stays until the word at `gate` is not 0.
struct SpinArgs {
  uint64_t gate;
};
/// One block moves all bytes, `step_bytes` at a time.
struct MoveArgs {
  uint64_t source;
  uint64_t destination;
  uint64_t size_bytes;
  uint64_t step_bytes;
};

class StampBlock final : public test::TestBlock<StampArgs> {
 public:
  using TestBlock::TestBlock;
  cuda::TwinStep step(cuda::TwinMemory& memory) override {
    memory.store(args_.to, memory.fetch_add(args_.counter, 1));
    return {.kind = cuda::TwinStep::Kind::kExit};
  }
};

class SpinBlock final : public test::TestBlock<SpinArgs> {
 public:
  using TestBlock::TestBlock;
  cuda::TwinStep step(cuda::TwinMemory& memory) override {
    using Kind = cuda::TwinStep::Kind;
    return {.kind = memory.load(args_.gate) == 0 ? Kind::kPoll : Kind::kExit};
  }
};

class MoveBlock final : public test::TestBlock<MoveArgs> {
 public:
  using TestBlock::TestBlock;
  cuda::TwinStep step(cuda::TwinMemory& /*memory*/) override {
    if (moved_bytes_ == args_.size_bytes) return {.kind = cuda::TwinStep::Kind::kExit};
    const uint64_t at = moved_bytes_;
    const uint64_t size_bytes = std::min(args_.step_bytes, args_.size_bytes - at);
    moved_bytes_ += size_bytes;
    return {.kind = cuda::TwinStep::Kind::kMove,
            .source = args_.source + at,
            .destination = args_.destination + at,
            .size_bytes = size_bytes};
  }

 private:
  uint64_t moved_bytes_ = 0;
};

inline constexpr cuda::Twin kOwnTwins[] = {test::twin_of<StampBlock>("stamp"),
                                           test::twin_of<SpinBlock>("spin"),
                                           test::twin_of<MoveBlock>("move")};

/// The kernel of the current context.
inline CUfunction own_kernel(Emulated& server, const char* name) {
  static const cuda::TwinImage image{.twins = kOwnTwins, .count = std::size(kOwnTwins)};
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  EXPECT_EQ(server.cu.cuModuleLoadData(&module, &image), CUDA_SUCCESS);
  EXPECT_EQ(server.cu.cuModuleGetFunction(&function, module, name), CUDA_SUCCESS);
  return function;
}

template <typename Args>
CUresult launch_own(Emulated& server, CUfunction function, Args args, CUstream stream,
                    unsigned blocks = 1, unsigned threads = 1) {
  void* parameters[] = {&args};
  return server.cu.cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, parameters,
                                  nullptr);
}

/// A context beside the primary one, which becomes current.
inline CUcontext new_context(Emulated& server, int device) {
  CUcontext made = nullptr;
  const auto create = server.symbol<CUresult (*)(CUcontext*, unsigned, CUdevice)>("cuCtxCreate_v2");
  EXPECT_EQ(create(&made, 0, device), CUDA_SUCCESS);
  return made;
}

}  // namespace braid::emulator_test
