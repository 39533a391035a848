// include/braid/fabric_watcher.h, with GPUs of the emulated server that write.
#include <cuda.h>

#include <optional>

#include "braid/fabric_watcher.h"
#include "fabric/library_pair.h"
#include "fabric/watcher_told.h"
#include "support/server.h"

namespace braid {
namespace {

using Memory = FabricWatcher::Memory;
using test::eventually;
using test::Told;

/// The driver of the emulated server; the process loads it once.
class GpuWatcherTest : public test::ServerTest {
 protected:
  void SetUp() override {
    ServerTest::SetUp();
    if (IsSkipped()) return;
    auto opened = Fabric::open({"tcp;ofi_rxm", {"127.0.0.1"}});
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    fabric_.emplace(std::move(opened).value());
  }

  std::optional<Fabric> fabric_;
};

TEST_F(GpuWatcherTest, AStreamOfAnyGpuWritesTheWord) {
  Told told;
  auto watcher = FabricWatcher::open(*fabric_, Memory::kGpu, told.callback()).value();
  const auto write_value =
      reinterpret_cast<CUresult (*)(CUstream, CUdeviceptr, cuuint64_t, unsigned)>(
          symbol("cuStreamWriteValue64_v2"));
  const auto set_words = reinterpret_cast<CUresult (*)(CUdeviceptr, unsigned, size_t, CUstream)>(
      symbol("cuMemsetD32Async"));
  ASSERT_NE(write_value, nullptr);
  ASSERT_NE(set_words, nullptr);
  const auto word = reinterpret_cast<CUdeviceptr>(watcher->word());
  uint64_t value = 0;
  for (int gpu = 0; gpu < gpus(); ++gpu) {
    use_gpu(gpu);
    CUstream stream = nullptr;
    MUST(driver(), cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    value = 0x100000001u * static_cast<unsigned>(gpu + 1);
    ASSERT_EQ(write_value(stream, word, value, 0), CUDA_SUCCESS);
    MUST(driver(), cuStreamSynchronize(stream));
    ASSERT_TRUE(eventually([&] { return told.latest() == value; })) << gpu;
    ASSERT_EQ(set_words(word, 0x7000 + static_cast<unsigned>(gpu), 1, stream), CUDA_SUCCESS);
    MUST(driver(), cuStreamSynchronize(stream));
    value = (value & ~uint64_t{0xffffffff}) | (0x7000u + static_cast<unsigned>(gpu));
    ASSERT_TRUE(eventually([&] { return told.latest() == value; })) << gpu;
    MUST(driver(), cuStreamDestroy(stream));
  }
  EXPECT_TRUE(told.is_chained());
  watcher.reset();
  CUdeviceptr mapped = 0;
  EXPECT_NE(driver().cuMemHostGetDevicePointer(&mapped, reinterpret_cast<void*>(word), 0),
            CUDA_SUCCESS)
      << "it is not registered any more";
}

TEST_F(GpuWatcherTest, WithoutACurrentContextItIsRefusedAndNoneIsMade) {
  MUST(driver(), cuCtxSetCurrent(nullptr));
  const auto refused = FabricWatcher::open(*fabric_, Memory::kGpu, nullptr);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().message(),
            "no CUDA context is current in this thread, and braid makes none. Make one current "
            "(cudaSetDevice and cudaFree(0), or cuCtxSetCurrent)");
  CUcontext current = nullptr;
  MUST(driver(), cuCtxGetCurrent(&current));
  EXPECT_EQ(current, nullptr);
  EXPECT_TRUE(FabricWatcher::open(*fabric_, Memory::kHost, nullptr).ok());
  use_gpu(0);
}

}  // namespace
}  // namespace braid
