// Plain memory that is freed in a stream's order behind copies which copy engines have yet to make.
#include <cstring>

#include "support/gate.h"
#include "support/server.h"

namespace braid::multipath {
namespace {

using test::HostBuffer;

constexpr uint64_t kSize = (16 << 20) + 5;

class LateFreesTest : public test::ServerTest {
 protected:
  void SetUp() override {
    ServerTest::SetUp();
    if (IsSkipped()) return;
    Options options = every_size();
    options.mover = MoverChoice::kCopyEngine;
    engine_ = open_engine(options);
    stream_ = new_stream();
  }

  CUdeviceptr allocate() {
    CUdeviceptr memory = 0;
    MUST(driver(), cuMemAlloc(&memory, kSize));
    return memory;
  }
  // There and back, in the stream.
  void copy(HostBuffer& source, HostBuffer& landing, CUdeviceptr memory) {
    for (const Direction direction : {Direction::kHostToDevice, Direction::kDeviceToHost}) {
      HostBuffer& end = direction == Direction::kHostToDevice ? source : landing;
      const Outcome outcome = engine_->submit({direction, end.data(), memory, kSize, stream_});
      ASSERT_EQ(outcome, Verdict::kAccelerated);
      ASSERT_EQ(outcome.mover, Mover::kCopyEngine);
    }
  }
  // As the interposer and the library do.
  CUresult free_async(CUdeviceptr memory) {
    const auto later = engine_->free_later(memory, stream_);
    return later ? *later : driver().cuMemFreeAsync(memory, stream_);
  }
  // On real GPUs other processes take and give, too.
  uint64_t free_bytes() {
    if (!is_emulated()) return 0;
    size_t free = 0, total = 0;
    MUST(driver(), cuMemGetInfo(&free, &total));
    return free;
  }

  std::unique_ptr<Engine> engine_;
  CUstream stream_ = nullptr;
};

TEST_F(LateFreesTest, MemoryStaysUntilAStreamThatIsHeldBackHasComeSoFar) {
  HostBuffer source(driver(), kSize), landing(driver(), kSize);
  source.fill_random(61);
  const uint64_t before = free_bytes();
  const CUdeviceptr memory = allocate();
  test::Gate gate(driver());
  gate.hold(stream_);
  copy(source, landing, memory);
  ASSERT_EQ(free_async(memory), CUDA_SUCCESS);
  EXPECT_EQ(free_async(memory), CUDA_ERROR_INVALID_VALUE) << "a second time";
  engine_->release_late();
  gate.open();
  synchronize(stream_);
  EXPECT_EQ(std::memcmp(source.data(), landing.data(), kSize), 0);
  if (is_emulated()) {
    EXPECT_LT(free_bytes(), before);
  }
  engine_->release_late();
  MUST(driver(), cuCtxSynchronize());
  EXPECT_EQ(free_bytes(), before);
}

TEST_F(LateFreesTest, MemoryIsFreedBehindTransfersUnderWay) {
  HostBuffer source(driver(), kSize), landing(driver(), kSize);
  source.fill_random(62);
  const uint64_t before = free_bytes();
  const CUdeviceptr memory = allocate();
  copy(source, landing, memory);
  ASSERT_EQ(free_async(memory), CUDA_SUCCESS);
  synchronize(stream_);
  EXPECT_EQ(std::memcmp(source.data(), landing.data(), kSize), 0);
  engine_->release_late();  // on a slow machine they did not end in the moment that they were given
  MUST(driver(), cuCtxSynchronize());
  EXPECT_EQ(free_bytes(), before);
}

TEST_F(LateFreesTest, TheEndOfTheEngineFreesWhatIsLate) {
  HostBuffer source(driver(), kSize), landing(driver(), kSize);
  source.fill_random(63);
  const uint64_t before = free_bytes();
  const CUdeviceptr memory = allocate();
  test::Gate gate(driver());
  gate.hold(stream_);
  copy(source, landing, memory);
  ASSERT_EQ(free_async(memory), CUDA_SUCCESS);
  gate.open();
  engine_.reset();
  MUST(driver(), cuCtxSynchronize());
  EXPECT_EQ(std::memcmp(source.data(), landing.data(), kSize), 0);
  EXPECT_GE(free_bytes(), before);
}

TEST_F(LateFreesTest, WhatIsNoMemoryIsForTheDriverToRefuse) {
  HostBuffer source(driver(), kSize), landing(driver(), kSize);
  const CUdeviceptr memory = allocate();
  test::Gate gate(driver());
  gate.hold(stream_);
  copy(source, landing, memory);
  EXPECT_EQ(engine_->free_later(memory + 512, stream_), std::nullopt);
  EXPECT_EQ(engine_->free_later(reinterpret_cast<CUdeviceptr>(source.data()), stream_),
            std::nullopt);
  gate.open();
  synchronize(stream_);
  MUST(driver(), cuMemFree(memory));
}

}  // namespace
}  // namespace braid::multipath
