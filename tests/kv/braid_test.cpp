// The same requests with braid's batches, over every link: whole, and with relays that are lost.
#include <cstdlib>
#include <string>

#include "kv/braid_copier.h"
#include "kv/requests.h"

namespace braid::kv::test {
namespace {

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
    const braid_option every_size{"BRAID_THRESHOLD", "1"};
    const braid_options options{sizeof options, &every_size, 1};
    ASSERT_EQ(braid_open(&options, &engine_), BRAID_OK) << braid_last_error();
    begin(1, {.slots = {9, 12}, .layers = 16, .copier = [this] {
                auto copier = std::make_unique<BraidCopier>(calls_of(engine_));
                copier_ = copier.get();
                return copier;
              }});
  }
  braid_engine* engine_ = nullptr;
  BraidCopier* copier_ = nullptr;  // the rotation engine's
};

TEST_F(BraidTest, OverEveryLink) {
  start("");
  if (IsSkipped()) return;
  run_with_faults();
  EXPECT_GT(copier_->carried().accelerated_bytes, copier_->carried().native_bytes);
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
  EXPECT_GT(copier_->carried().accelerated_bytes, 0u);
  finish_without_faults();
}

}  // namespace
}  // namespace braid::kv::test
