// The same requests with braid's batches, over every link: whole, and with relays that are lost.
// With kernels on the GPU itself, or with copy engines there.
#include <cstdlib>
#include <string>
#include <tuple>

#include "kv/braid_copier.h"
#include "kv/requests.h"

namespace braid::kv::test {
namespace {

// Notes how often a copy has failed.
class NotingCopier final : public Copier {
 public:
  NotingCopier(std::unique_ptr<Copier> inner, uint64_t& failures)
      : inner_(std::move(inner)), failures_(failures) {}
  Status copy(std::span<const library::Copy> copies, CUstream stream, Urgency urgency) override {
    Status copied = inner_->copy(copies, stream, urgency);
    failures_ += copied.ok() ? 0 : 1;
    return copied;
  }

 private:
  std::unique_ptr<Copier> inner_;
  uint64_t& failures_;  // the test's
};

class BraidTest : public RequestsTest {
 protected:
  BraidTest() { gpus_needed = 2; }

  void SetUp() override {}  // the test says which faults, then starts
  void TearDown() override {
    RequestsTest::TearDown();
    braid_close(engine_);
  }

  void start(const std::string& faults) {
    if (!faults.empty()) setenv("BRAID_FAULTS", faults.c_str(), 1);
    RequestsTest::SetUp();
    if (IsSkipped()) return;
    const braid_option wanted[] = {{"BRAID_THRESHOLD", "1"}, {"BRAID_RELAYS", relays_}};
    const braid_options options{sizeof options, wanted, std::size(wanted)};
    ASSERT_EQ(braid_open(&options, &engine_), BRAID_OK) << braid_last_error();
    begin(1, {.slots = {9, 12}, .layers = 16, .copier = [this] {
                auto copier = std::make_unique<BraidCopier>(calls_of(engine_, copy_batch_));
                copier_ = copier.get();
                return std::make_unique<NotingCopier>(std::move(copier), refused_batches_);
              }});
  }
  Carried carried() const { return copier_->carried(); }

  decltype(&braid_copy_batch) copy_batch_ = braid_copy_batch;
  const char* relays_ = "all";
  uint64_t refused_batches_ = 0;

 private:
  braid_engine* engine_ = nullptr;
  BraidCopier* copier_ = nullptr;  // the rotation engine's
};

TEST_F(BraidTest, OverEveryLink) {
  start("");
  if (IsSkipped()) return;
  run_with_faults();
  EXPECT_GT(carried().accelerated_bytes, carried().native_bytes);
  finish_without_faults();
}

// Three GPUs have no time for relays' kernels, and launches fail now and then.
TEST_F(BraidTest, RelaysThatAreLost) {
  if (!is_emulated()) GTEST_SKIP() << "waived: the emulated server loses its relays";
  std::string faults = R"({"busy": [)";
  for (const char* gpu : {"1", "2", "3"})
    faults += std::string(faults.back() == '[' ? "" : ", ") + R"({"gpu": )" + gpu +
              R"(, "from_us": 0, "to_us": 10000000})";
  faults += R"(], "calls": [)";
  for (const char* nth : {"5", "17", "40", "41"})
    faults += std::string(faults.back() == '[' ? "" : ", ") +
              R"({"name": "cuLaunchKernel", "nth": )" + nth +
              R"(, "error": "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"})";
  start(faults + "]}");
  run_with_faults();
  EXPECT_GT(carried().accelerated_bytes, 0u);
  finish_without_faults();
}

class CopyEnginesTest : public BraidTest {
 protected:
  CopyEnginesTest() { copy_batch_ = braid_copy_batch_sparing; }
};

TEST_F(CopyEnginesTest, TheOwnLinkAndRelaysShareTheBytes) {
  start("");
  if (IsSkipped()) return;
  run_with_faults();
  finish_without_faults();
  EXPECT_GT(carried().native_bytes, 0u);
  if (is_emulated()) {  // on others, relays that begin late may get nothing of so few bytes
    EXPECT_GT(carried().accelerated_bytes, carried().native_bytes / 4);
  }
  EXPECT_EQ(refused_batches_, 0u);
}

// It has no time for kernels before the end of the test, and no batch waits for one.
TEST_F(CopyEnginesTest, NoKernelRunsOnTheGpuItself) {
  if (!is_emulated()) GTEST_SKIP() << "waived: the emulated server keeps a GPU busy";
  if (::testing::UnitTest::GetInstance()->test_to_run_count() > 1)
    GTEST_SKIP() << "waived: a driver knows its faults once it is opened. Run this test alone";
  constexpr uint64_t kHourUs = 3'600'000'000;
  start(R"({"busy": [{"gpu": 0, "from_us": 0, "to_us": )" + std::to_string(kHourUs) + "}]}");
  run_with_faults();
  finish_without_faults();
  EXPECT_GT(carried().accelerated_bytes, 0u);
  EXPECT_LT(driver().clock->now_ns() / 1000, kHourUs);
}

TEST_F(CopyEnginesTest, WithoutARelayAllIsTheDrivers) {
  relays_ = "none";
  start("");
  if (IsSkipped()) return;
  run_with_faults();
  finish_without_faults();
  EXPECT_EQ(carried().accelerated_bytes, 0u);
  EXPECT_GT(carried().native_bytes, 0u);
  EXPECT_EQ(refused_batches_, 0u);
}

// Either half, and what holds them together. A batch that the driver has refused in part is fenced
// until that part has ended: the bytes of each step and the order of all accesses are looked at.
class CopyEnginesFaultsTest : public CopyEnginesTest,
                              public ::testing::WithParamInterface<std::tuple<std::string, int>> {};

TEST_P(CopyEnginesFaultsTest, EveryRequestEnds) {
  if (!is_emulated()) GTEST_SKIP() << "waived: the emulated driver refuses calls";
  if (::testing::UnitTest::GetInstance()->test_to_run_count() > 1)
    GTEST_SKIP() << "waived: a driver knows its faults once it is opened. Run this test alone";
  const auto [call, every] = GetParam();
  constexpr int kOfOpening = 20, kLast = 1000;
  std::string faults;
  for (int nth = kOfOpening + every; nth <= kLast; nth += every)
    faults += std::string(faults.empty() ? "" : ", ") + R"({"name": ")" + call + R"(", "nth": )" +
              std::to_string(nth) + R"(, "error": "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"})";
  start(R"({"calls": [)" + faults + "]}");
  run_with_faults();
  finish_without_faults();
  EXPECT_GT(carried().native_bytes, 0u);
  const bool is_own_link = call == "cuMemcpyBatchAsync";
  EXPECT_EQ(refused_batches_ > 0, is_own_link) << refused_batches_;
}
INSTANTIATE_TEST_SUITE_P(
    Every, CopyEnginesFaultsTest,
    ::testing::Combine(::testing::Values("cuLaunchKernel", "cuMemcpyBatchAsync",
                                         "cuStreamWaitValue32_v2", "cuStreamWriteValue32_v2"),
                       ::testing::Values(1, 2, 3, 7)),
    [](const auto& tested) {
      const std::string& call = std::get<0>(tested.param);
      return call.substr(2, call.find('_') - 2) + std::to_string(std::get<1>(tested.param));
    });

}  // namespace
}  // namespace braid::kv::test
