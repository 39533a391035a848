// libbraid_kv.so by each mover: over the GPU's own link, and over every link.
#include <array>
#include <chrono>
#include <future>

#include "kv/library_rig.h"
#include "support/gate.h"

namespace braid::test {
namespace {

TEST_F(KvLibraryTest, RotatesOverOneLink) {
  auto opened = Rotation::open(options_);
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  rotate(opened.value());
  const auto statistics = opened.value().statistics();
  EXPECT_EQ(statistics.value().gpu_slots_free, kGpuSlots);
  EXPECT_EQ(statistics.value().host_slots_free, kHostSlots);
  EXPECT_EQ(statistics.value().accelerated_bytes, 0u);
}

TEST_F(KvLibraryTest, RotatesOverOneLinkByKernel) {
  split_blocks(16);  // enough copies for a kernel
  options_.mover = Rotation::Mover::kKernel;
  auto opened = Rotation::open(options_);
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  rotate(opened.value());
  EXPECT_GT(opened.value().statistics().value().accelerated_bytes, 0u);
}

// Without an engine they are the driver's batches.
TEST_F(KvLibraryTest, RotatesOverOneLinkByCopyEngines) {
  options_.mover = Rotation::Mover::kCopyEngines;
  auto opened = Rotation::open(options_);
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  rotate(opened.value());
  EXPECT_EQ(opened.value().statistics().value().accelerated_bytes, 0u);
}

class KvLibraryOverEveryLinkTest : public KvLibraryTest {
 protected:
  KvLibraryOverEveryLinkTest() { gpus_needed = 2; }
};

TEST_F(KvLibraryOverEveryLinkTest, Rotates) {
  const braid_option every_size[] = {{"BRAID_THRESHOLD", "1"}};
  auto engine = Engine::open(every_size);
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  options_.mover = static_cast<Rotation::Mover>(7);
  EXPECT_NE(Rotation::open(options_, engine.value()).status().message().find("mover is 7"),
            std::string::npos);
  options_.mover = Rotation::Mover::kDriver;
  auto opened = Rotation::open(options_, engine.value());
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  rotate(opened.value());
  EXPECT_GT(opened.value().statistics().value().accelerated_bytes, 0u);
}

TEST_F(KvLibraryOverEveryLinkTest, RotatesByCopyEnginesOnTheGpuItself) {
  const braid_option every_size[] = {{"BRAID_THRESHOLD", "1"}};
  auto engine = Engine::open(every_size);
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  split_blocks(64);
  options_.mover = Rotation::Mover::kCopyEngines;
  auto opened = Rotation::open(options_, engine.value());
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  rotate(opened.value());
  const Rotation::Statistics statistics = opened.value().statistics().value();
  EXPECT_GT(statistics.native_bytes, 0u);
  if (is_emulated()) {
    EXPECT_GT(statistics.accelerated_bytes, 0u);
  }
}

// To load kernels into a context is to wait for its streams: opening does that, so that no plan
// has to, also in a context that the engine has not seen.
TEST_F(KvLibraryOverEveryLinkTest, APlanWaitsForNoStreamOfANewContext) {
  const braid_option options[] = {{"BRAID_THRESHOLD", "1"}, {"BRAID_OPENING", "wait"}};
  auto engine = Engine::open(options);
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  CUcontext own = nullptr;
  MUST(driver(), create_context(&own, 0, 0));
  cache_ = std::make_unique<DeviceBuffer>(driver(), kGpuSlots * block_bytes_);
  compute_ = new_stream();
  options_.ranks = {{own, cache_->at(), compute_}};
  {
    auto opened = Rotation::open(options_, engine.value());
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    Rotation& rotation = opened.value();
    rotation.begin_step();
    const BlockNumber block = rotation.create().value();
    write(rotation, block, 7);
    ASSERT_TRUE(rotation.seal({&block, 1}).ok());
    ASSERT_TRUE(rotation.end_step().ok());
    ASSERT_TRUE(rotation.end_use({&block, 1}).ok());
    Gate gate(driver());
    gate.hold(new_stream());
    auto submitted = std::async(std::launch::async, [&] {
      return rotation.submit({.evict = {&block, 1}});
    });
    EXPECT_EQ(submitted.wait_for(std::chrono::seconds(20)), std::future_status::ready);
    gate.open();
    EXPECT_TRUE(submitted.get().failure.ok());
    rotation.wait();
    EXPECT_GT(rotation.statistics().value().accelerated_bytes, 0u);
  }
  use_gpu(0);
}

}  // namespace
}  // namespace braid::test
