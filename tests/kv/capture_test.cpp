// Rotation beside a thread that records a graph in Global mode, PyTorch's default. The driver then
// refuses calls of every thread that is not in relaxed mode, and spoils the recording.
#include <gtest/gtest.h>

#include "kv/kernel_copier.h"
#include "kv/rig.h"

namespace braid::kv::test {
namespace {

class CaptureTest : public KvTest {
 protected:
  // A recording of this thread's, in a stream that rotation does not know.
  void begin_recording() {
    recording_ = new_stream();
    const auto begin = reinterpret_cast<CUresult (*)(CUstream, CUstreamCaptureMode)>(
        symbol("cuStreamBeginCapture_v2"));
    ASSERT_EQ(begin(recording_, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  }
  void expect_recorded() {
    const auto end =
        reinterpret_cast<CUresult (*)(CUstream, CUgraph*)>(symbol("cuStreamEndCapture"));
    CUgraph graph = nullptr;
    EXPECT_EQ(end(recording_, &graph), CUDA_SUCCESS) << "the recording was spoilt";
  }
  bool is_pinned(const void* address) const {
    unsigned type = 0;
    return driver().cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                          reinterpret_cast<CUdeviceptr>(address)) == CUDA_SUCCESS;
  }

 private:
  CUstream recording_ = nullptr;
};

TEST_F(CaptureTest, PlansArePolledForAndNothingIsLost) {
  open({});
  const BlockId id = unused_block(5);
  begin_recording();
  EXPECT_TRUE(rotation().submit({.evict = {&id, 1}}).failure.ok());
  const Report& report = rotation().drain();
  EXPECT_TRUE(report.failure.ok()) << report.failure.message();
  EXPECT_EQ(state(id), BlockState::kHostOnly);
  expect_recorded();
  load_and_read(id, 5);
}

TEST_F(CaptureTest, RotationOpensAndClosesBesideIt) {
  open({});
  const Layout& layout = rotation().layout();
  const braid::test::DeviceBuffer cache(driver(), layout.gpu_bytes(8));
  begin_recording();
  auto copier = KernelCopier::open(driver(), std::array{context(0)});
  ASSERT_TRUE(copier.ok()) << copier.status().message();
  auto opened =
      RotationEngine::open(driver(), {layout, {8, 8}, {{context(0), cache.at(), compute(0)}}},
                           std::move(copier).value());
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  opened.value().reset();
  expect_recorded();
}

TEST_F(CaptureTest, ThePoolIsUnpinnedBeforeItIsUnmapped) {
  open({});
  auto pool = HostPool::open(driver(), 1 << 20);
  ASSERT_TRUE(pool.ok()) << pool.status().message();
  const std::byte* const data = pool.value()->data();
  EXPECT_TRUE(is_pinned(data));
  begin_recording();
  pool.value().reset();
  EXPECT_FALSE(is_pinned(data));
  expect_recorded();
}

}  // namespace
}  // namespace braid::kv::test
