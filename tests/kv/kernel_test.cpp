// Rotation over one link by braid's kernel: the same requests, batches that are left to the driver,
// and launches that the driver refuses.
#include "kv/kernel_copier.h"

#include <cstdlib>
#include <string>

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

}  // namespace
}  // namespace braid::kv::test
