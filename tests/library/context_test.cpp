// Which contexts an engine of the program's own makes known.
#include "cuda/queries.h"
#include "fixture.h"

namespace braid::test {
namespace {

using ContextTest = LibraryTest;

TEST_F(ContextTest, AContextThatIsNewIsTakenUpByItsFirstCopy) {
  CUcontext fresh = nullptr;
  auto* create =
      reinterpret_cast<CUresult (*)(CUcontext*, unsigned, CUdevice)>(symbol("cuCtxCreate_v2"));
  auto* destroy = reinterpret_cast<CUresult (*)(CUcontext)>(symbol("cuCtxDestroy_v2"));
  ASSERT_EQ(create(&fresh, 0, 0), CUDA_SUCCESS);
  {
    HostBuffer host(driver(), kSize);
    DeviceBuffer device(driver(), kSize);
    host.fill_random(6);
    ASSERT_EQ(
        braid_copy(engine_, at(device), host.data(), kSize, CU_STREAM_PER_THREAD, 0, &outcome_),
        BRAID_OK);
    EXPECT_STREQ(outcome_.reason, "accelerated");
    synchronize(CU_STREAM_PER_THREAD);
    EXPECT_EQ(read(device, kSize), bytes(host));
    EXPECT_EQ(braid_prepare(engine_), BRAID_OK);
  }
  EXPECT_EQ(braid_forget_context(engine_, fresh), BRAID_OK);
  EXPECT_EQ(destroy(fresh), CUDA_SUCCESS);
}

TEST_F(ContextTest, PreparingHoldsPrimaryContextsUntilTheyAreForgotten) {
  auto* release = reinterpret_cast<CUresult (*)(CUdevice)>(symbol("cuDevicePrimaryCtxRelease_v2"));
  ASSERT_EQ(braid_forget_context(engine_, context(1)), BRAID_OK);
  while (cuda::has_primary_context(driver(), 1)) ASSERT_EQ(release(1), CUDA_SUCCESS);
  CUcontext other = nullptr;
  MUST(driver(), cuDevicePrimaryCtxRetain(&other, 1));
  use_gpu(0);
  EXPECT_EQ(braid_prepare(engine_), BRAID_OK) << braid_last_error();
  EXPECT_EQ(release(1), CUDA_SUCCESS);
  EXPECT_TRUE(cuda::has_primary_context(driver(), 1)) << "braid does not hold it";
  EXPECT_EQ(braid_forget_context(engine_, other), BRAID_OK);
  EXPECT_FALSE(cuda::has_primary_context(driver(), 1)) << "braid holds it";
}

// To load code into it might wait for what its streams wait for.
TEST_F(ContextTest, ACopyMakesNoContextOfAnotherGpuKnown) {
  auto* create =
      reinterpret_cast<CUresult (*)(CUcontext*, unsigned, CUdevice)>(symbol("cuCtxCreate_v2"));
  auto* destroy = reinterpret_cast<CUresult (*)(CUcontext)>(symbol("cuCtxDestroy_v2"));
  auto* release = reinterpret_cast<CUresult (*)(CUdevice)>(symbol("cuDevicePrimaryCtxRelease_v2"));
  auto* allocate =
      reinterpret_cast<CUresult (*)(CUdeviceptr*, size_t, CUstream)>(symbol("cuMemAllocAsync"));
  ASSERT_EQ(braid_forget_context(engine_, context(1)), BRAID_OK);
  while (cuda::has_primary_context(driver(), 1)) ASSERT_EQ(release(1), CUDA_SUCCESS);
  CUcontext fresh = nullptr, other = nullptr;
  MUST(driver(), cuDevicePrimaryCtxRetain(&other, 1));
  ASSERT_EQ(create(&fresh, 0, 0), CUDA_SUCCESS);
  HostBuffer host(driver(), kSize);
  host.fill_random(8);
  CUstream stream = nullptr;
  MUST(driver(), cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUdeviceptr pooled = 0;  // of no context
  ASSERT_EQ(allocate(&pooled, kSize, stream), CUDA_SUCCESS);
  ASSERT_EQ(braid_copy(engine_, reinterpret_cast<void*>(pooled), host.data(), kSize, stream, 0,
                       &outcome_),
            BRAID_OK);
  EXPECT_STREQ(outcome_.reason, "accelerated");
  synchronize(stream);
  std::vector<uint8_t> seen(kSize);
  MUST(driver(), cuMemcpyDtoH(seen.data(), pooled, kSize));
  EXPECT_EQ(seen, bytes(host));
  EXPECT_EQ(release(1), CUDA_SUCCESS);
  EXPECT_FALSE(cuda::has_primary_context(driver(), 1)) << "braid holds it";
  EXPECT_EQ(braid_forget_context(engine_, fresh), BRAID_OK);
  EXPECT_EQ(destroy(fresh), CUDA_SUCCESS);
}

}  // namespace
}  // namespace braid::test
