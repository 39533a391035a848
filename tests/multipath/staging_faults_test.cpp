// The driver refuses one call in the middle of a staged copy: nothing is lost. Each fault has a
// process of its own, since faults are set before the driver starts.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <functional>

#include "fresh_memory.h"
#include "multipath/staging/chunks.h"
#include "support/server.h"

namespace braid::multipath {
namespace {

using test::DeviceBuffer;

constexpr uint64_t kSize = (40 << 20) + 9;  // more than a ring

enum Outcome : int { kRight, kWrongBytes, kRefused, kNoEngine, kThrew, kRingUsedAgain };

struct RefusedCall {
  std::string name;
  int nth;
};

// The driver pins for braid; here it counts rings.
decltype(&cuMemHostRegister) real_register = nullptr;
int rings = 0;

CUresult register_and_count(void* memory, size_t size_bytes, unsigned flags) {
  rings += size_bytes == staging::kSlots * staging::kSlotBytes ? 1 : 0;
  return real_register(memory, size_bytes, flags);
}

class StagingFaultsTest : public test::ServerTest {
 protected:
  void SetUp() override {}  // the child starts the driver, with its fault

  // In a child process, with these calls refused. kRefused: a copy was answered with the driver's
  // error, which its caller sees.
  Outcome outcome_of(const std::vector<RefusedCall>& refused,
                     const std::function<Outcome()>& copy) {
    const pid_t child = fork();
    if (child == 0) {
      std::string calls;
      for (const auto& [name, nth] : refused)
        calls += (calls.empty() ? "" : ",") + (R"({"name": ")" + name) + R"(", "nth": )" +
                 std::to_string(nth) + R"(, "error": "CUDA_ERROR_UNKNOWN"})";
      setenv("BRAID_FAULTS", (R"({"calls": [)" + calls + "]}").c_str(), 1);
      setenv("CUDA_VISIBLE_DEVICES", "0,1", 1);
      try {
        ServerTest::SetUp();
        _exit(copy());
      } catch (...) {
        _exit(kThrew);
      }
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status)) << refused[0].name << " " << refused[0].nth;
    return static_cast<Outcome>(WEXITSTATUS(status));
  }

  Outcome outcome_of(const char* name, int nth) {
    return outcome_of({{name, nth}}, [this] { return copy_twice(driver()); });
  }

  Outcome copy_twice(const cuda::Driver& of_engine) {
    Options options;
    options.threshold_bytes = 4 << 20;
    options.pageable_threads = 2;
    auto engine = Engine::open(of_engine, options);
    if (!engine.ok()) return kNoEngine;
    const CUstream stream = new_stream();
    DeviceBuffer device(driver(), kSize);
    const Outcome first = there_and_back(*engine.value(), device, stream, 1);
    const Outcome second = there_and_back(*engine.value(), device, stream, 2);
    if (first != kRefused) return first != kRight ? first : second;
    return second != kRight ? second : kRefused;
  }

  // One after the other, so that one ring does unless it is lost.
  Outcome copy_twice_and_count_rings() {
    cuda::Driver counting = driver();
    real_register = counting.cuMemHostRegister;
    counting.cuMemHostRegister = register_and_count;
    const Outcome outcome = copy_twice(counting);
    return outcome == kRefused && rings == 1 ? kRingUsedAgain : outcome;
  }

  Outcome there_and_back(Engine& engine, DeviceBuffer& device, CUstream stream, uint8_t seed) {
    std::vector<uint8_t> source(kSize);
    test::FreshMemory landing(kSize);
    for (uint64_t i = 0; i < kSize; ++i) source[i] = static_cast<uint8_t>(i * seed + (i >> 11));
    auto there =
        engine.stage({Direction::kHostToDevice, source.data(), device.at(), kSize, stream}, true);
    if (!there)
      there = Staged{driver().cuMemcpyHtoDAsync(device.at(), source.data(), kSize, stream)};
    auto back =
        engine.stage({Direction::kDeviceToHost, landing.data(), device.at(), kSize, stream}, true);
    if (!back)
      back = Staged{driver().cuMemcpyDtoHAsync(landing.data(), device.at(), kSize, stream)};
    if (*there != CUDA_SUCCESS || *back != CUDA_SUCCESS) return kRefused;
    return std::memcmp(landing.data(), source.data(), kSize) == 0 ? kRight : kWrongBytes;
  }
};

TEST_F(StagingFaultsTest, ARefusedCallLosesNothing) {
  // The calls of opening come first; those of the two copies are among the numbers below.
  struct Case {
    const char* name;
    int first, last;
  };
  for (const Case& which : {Case{"cuMemHostRegister_v2", 1, 4}, Case{"cuEventCreate", 24, 28},
                            Case{"cuEventRecord", 5, 20}, Case{"cuEventSynchronize", 1, 12},
                            Case{"cuMemcpyHtoDAsync_v2", 1, 2}, Case{"cuMemcpyDtoHAsync_v2", 1, 3},
                            Case{"cuStreamGetCtx", 1, 6}, Case{"cuPointerGetAttributes", 1, 4},
                            Case{"cuLaunchKernel", 9, 12}})
    for (int nth = which.first; nth <= which.last; ++nth) {
      const Outcome outcome = outcome_of(which.name, nth);
      EXPECT_TRUE(outcome == kRight || outcome == kNoEngine)
          << "outcome " << outcome << " with call " << nth << " of " << which.name << " refused";
    }
}

// These are the copy's own waits: where the driver refuses them, the program hears it or the copy
// is native, but no byte is wrong.
TEST_F(StagingFaultsTest, ARefusedWaitIsNeverAWrongByte) {
  for (int nth = 1; nth <= 6; ++nth) {
    const Outcome outcome = outcome_of("cuStreamSynchronize", nth);
    EXPECT_TRUE(outcome == kRight || outcome == kRefused) << outcome << " at " << nth;
  }
}

// Bytes are under way that no stream waits for. The caller hears of it, and nobody gets the memory
// that they may still come from or go to.
TEST_F(StagingFaultsTest, ARefusedGateIsTheCallersAnswerAndItsRingIsLost) {
  for (int nth = 1; nth <= 12; ++nth)
    EXPECT_EQ(outcome_of({{"cuStreamBatchMemOp_v2", nth}, {"cuStreamWaitEvent", 1}},
                         [this] { return copy_twice_and_count_rings(); }),
              kRefused)
        << nth;
}

}  // namespace
}  // namespace braid::multipath
