// Kernels that a program brings: twins as the image of a module.
#include "fixture.h"
#include "support/test_block.h"
#include "support/test_kernels.h"

namespace braid::emulator_test {
namespace {

struct AddArgs {
  uint64_t word;
  uint32_t value;
  uint32_t unused;
};

class AddBlock final : public test::TestBlock<AddArgs> {
 public:
  using TestBlock::TestBlock;
  cuda::TwinStep step(cuda::TwinMemory& memory) override {
    memory.fetch_add(args_.word, args_.value);
    return {.kind = cuda::TwinStep::Kind::kExit};
  }
};

TEST(Module, AProgramBringsKernelsOfItsOwn) {
  Emulated server;
  server.use(0);
  static constexpr cuda::Twin kTwins[] = {test::twin_of<AddBlock>("add")};
  const cuda::TwinImage image{.twins = kTwins, .count = 1};
  CUmodule module = nullptr, braids = nullptr;
  CUfunction add = nullptr;
  ASSERT_EQ(server.cu.cuModuleLoadData(&module, &image), CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuModuleLoadData(&braids, test::test_kernels()), CUDA_SUCCESS);
  EXPECT_EQ(server.cu.cuModuleGetFunction(&add, module, test::kSpinKernelName),
            CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(server.cu.cuModuleGetFunction(&add, braids, "add"), CUDA_ERROR_NOT_FOUND);
  ASSERT_EQ(server.cu.cuModuleGetFunction(&add, module, "add"), CUDA_SUCCESS);

  auto* word = reinterpret_cast<uint32_t*>(server.pinned_memory(sizeof(uint32_t)));
  *word = 1;
  AddArgs args{reinterpret_cast<uint64_t>(word), 5, 0};
  void* parameters[] = {&args};
  const CUstream stream = server.stream();
  ASSERT_EQ(server.cu.cuLaunchKernel(add, 3, 1, 1, 32, 1, 1, 0, stream, parameters, nullptr),
            CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(*word, 16u) << "once for each block";
}

}  // namespace
}  // namespace braid::emulator_test
