// Rotation over one link by braid's kernel: the same requests, batches that are left to the driver,
// launches that the driver refuses, and segments of any size.
#include "kv/kernel_copier.h"

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "kv/requests.h"

namespace braid::kv::test {
namespace {

class KernelTest : public RequestsTest {
 protected:
  void SetUp() override {}  // the test says which faults, then starts

  void start(const std::string& faults, uint32_t layers, int ranks = 1) {
    gpus_needed = ranks;
    if (!faults.empty()) setenv("BRAID_FAULTS", faults.c_str(), 1);
    RequestsTest::SetUp();
    if (IsSkipped()) return;
    begin(1, {.slots = {9, 12}, .layers = layers, .ranks = ranks, .copier = [this, ranks] {
                std::vector<CUcontext> contexts;
                for (int gpu = 0; gpu < ranks; ++gpu) contexts.push_back(context(gpu));
                auto copier = KernelCopier::open(driver(), contexts);
                EXPECT_TRUE(copier.ok()) << copier.status().message();
                copier_ = copier.value().get();
                return std::move(copier).value();
              }});
  }
  Carried carried() const { return copier_->carried(); }

 private:
  const KernelCopier* copier_ = nullptr;  // the rotation engine's
};

TEST_F(KernelTest, EveryRequestEnds) {
  start("", 64);
  if (IsSkipped()) return;
  run_with_faults();
  finish_without_faults();
  EXPECT_GT(carried().accelerated_bytes, 0u);
  EXPECT_EQ(carried().native_bytes, 0u) << "a batch here has 64 segments or more";
}

TEST_F(KernelTest, EveryRankHasItsKernels) {
  start("", 64, 2);
  if (IsSkipped()) return;
  run_with_faults();
  finish_without_faults();
  EXPECT_EQ(carried().native_bytes, 0u);
}

// A call of the driver is cheap for them, and takes no multiprocessor.
TEST_F(KernelTest, FewCopiesAreTheDrivers) {
  start("", 1);
  if (IsSkipped()) return;
  run_with_faults();
  finish_without_faults();
  EXPECT_EQ(carried().accelerated_bytes, 0u);
  EXPECT_GT(carried().native_bytes, 0u);
}

TEST_F(KernelTest, LaunchesThatAreRefusedAreTheDriversBatches) {
  if (!is_emulated()) GTEST_SKIP() << "waived: the emulated driver refuses launches";
  if (::testing::UnitTest::GetInstance()->test_to_run_count() > 1)
    GTEST_SKIP() << "waived: a driver knows its faults once it is opened. Run this test alone";
  std::string faults = R"({"calls": [)";
  for (const char* nth : {"1", "3", "4", "9"})
    faults += std::string(faults.back() == '[' ? "" : ", ") +
              R"({"name": "cuLaunchKernelEx", "nth": )" + nth +
              R"(, "error": "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"})";
  start(faults + "]}", 64);
  run_with_faults();
  finish_without_faults();
  EXPECT_GT(carried().accelerated_bytes, 0u);
  EXPECT_GT(carried().native_bytes, 0u);
}

class SegmentsTest : public braid::test::ServerTest {
 protected:
  SegmentsTest() { gpus_needed = 1; }
};

// Caches have blocks of one size. These have ends at any byte, are smaller and larger than what a
// kernel moves at once, and lie on the GPU as on the host modulo 16, or not.
TEST_F(SegmentsTest, OfAnySizeComeBackAndNothingBetweenThemChanges) {
  constexpr uint64_t kBytes = 12 << 20;
  constexpr uint64_t kCount = 400;
  auto copier = KernelCopier::open(driver(), std::vector<CUcontext>{context(0)});
  ASSERT_TRUE(copier.ok()) << copier.status().message();
  braid::test::HostBuffer sent(driver(), kBytes);
  braid::test::HostBuffer back(driver(), kBytes);
  const braid::test::DeviceBuffer device(driver(), kBytes + 16);
  const CUstream stream = new_stream();
  uint64_t copied_bytes = 0;
  for (const uint64_t largest_bytes : {3'000, 50'000}) {
    for (const uint64_t shift : {0, 1}) {
      SCOPED_TRACE("up to " + std::to_string(largest_bytes) + " bytes, " + std::to_string(shift));
      sent.fill_random(largest_bytes + shift);
      back.fill_random(largest_bytes + shift + 7);
      std::vector<uint8_t> expected(back.data(), back.data() + kBytes);
      std::vector<library::Copy> up;
      std::vector<library::Copy> down;
      for (uint64_t i = 0, at = 3; i < kCount; ++i) {
        const uint64_t size_bytes = 1 + i * 7919 % largest_bytes;
        ASSERT_LE(at + size_bytes, kBytes);
        up.push_back(
            {device.at(at + shift), reinterpret_cast<uint64_t>(sent.data() + at), size_bytes});
        down.push_back(
            {reinterpret_cast<uint64_t>(back.data() + at), device.at(at + shift), size_bytes});
        std::memcpy(expected.data() + at, sent.data() + at, size_bytes);
        copied_bytes += 2 * size_bytes;
        at += size_bytes + 1 + i % 19;
      }
      for (const auto& copies : {up, down})
        ASSERT_TRUE(copier.value()->copy(copies, stream, Urgency::kBulk).ok());
      synchronize(stream);
      EXPECT_EQ(std::memcmp(back.data(), expected.data(), kBytes), 0);
    }
  }
  EXPECT_EQ(copier.value()->carried(), (Carried{copied_bytes, 0}));
}

}  // namespace
}  // namespace braid::kv::test
