// Host memory that braid pins for itself: who else can see it, and how it is given back.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "cuda/registered_memory.h"
#include "multipath/staging/ring.h"
#include "support/server.h"

namespace braid::multipath {
namespace {

using cuda::RegisteredMemory;

constexpr uint64_t kSize = 64 << 10;

bool is_mapped(const void* address) {
  return msync(const_cast<void*>(address), 4096, MS_ASYNC) == 0;
}

class PinnedMemoryTest : public test::ServerTest {
 protected:
  void SetUp() override {}  // where faults are set before the driver starts
  void start() { ServerTest::SetUp(); }

  std::unique_ptr<RegisteredMemory> registered() {
    auto memory = RegisteredMemory::open(driver(), kSize, "a test");
    EXPECT_TRUE(memory.ok());
    return std::move(memory).value();
  }
  bool is_registered(void* address) {
    CUdeviceptr mapped = 0;
    return driver().cuMemHostGetDevicePointer(&mapped, address, 0) == CUDA_SUCCESS;
  }
  // What the child finds, which is another process than the one that GPUs know.
  template <typename Find>
  static int in_a_child(const Find& find) {
    const pid_t child = fork();
    if (child == 0) _exit(find());
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
};

// If a child had the pages too, the parent's next write would go to a new page, while GPUs keep the
// old one (before Linux 5.9), or each fork would copy them.
TEST_F(PinnedMemoryTest, AChildHasNoRing) {
  start();
  staging::Ring ring(driver(), context(0));
  ASSERT_TRUE(ring.open().ok());
  ring.slot(0)[0] = 7;
  const uint8_t* last = ring.slot(staging::kSlots - 1) + staging::kSlotBytes - 4096;
  EXPECT_EQ(in_a_child([&] { return is_mapped(ring.slot(0)) || is_mapped(last); }), 0);
  EXPECT_EQ(ring.slot(0)[0], 7);
}

// It may look at words there.
TEST_F(PinnedMemoryTest, AChildReadsZerosInsteadOfWords) {
  start();
  const auto memory = registered();
  auto* const word = static_cast<uint8_t*>(memory->data()) + kSize - 1;
  *word = 7;
  EXPECT_EQ(in_a_child([&] { return *word; }), 0);
  EXPECT_EQ(*word, 7);
}

TEST_F(PinnedMemoryTest, ItIsGivenBackWhileAGraphIsRecorded) {
  start();
  auto memory = registered();
  void* const address = memory->data();
  auto* begin = reinterpret_cast<CUresult (*)(CUstream, CUstreamCaptureMode)>(
      symbol("cuStreamBeginCapture_v2"));
  auto* end = reinterpret_cast<CUresult (*)(CUstream, CUgraph*)>(symbol("cuStreamEndCapture"));
  const CUstream recorded = new_stream();
  ASSERT_EQ(begin(recorded, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  memory.reset();
  CUgraph graph = nullptr;
  EXPECT_EQ(end(recorded, &graph), CUDA_SUCCESS) << "the recording is spoilt";
  EXPECT_FALSE(is_registered(address));
  EXPECT_FALSE(is_mapped(address));
}

// Other memory that came to its addresses would be taken for it.
TEST_F(PinnedMemoryTest, WhatTheDriverKeepsStaysMapped) {
  setenv("BRAID_FAULTS", R"({"calls": [{"name": "cuMemHostUnregister", "nth": 1,
                             "error": "CUDA_ERROR_UNKNOWN"}]})",
         1);
  start();
  auto memory = registered();
  void* const address = memory->data();
  memory.reset();
  EXPECT_TRUE(is_registered(address));
  EXPECT_TRUE(is_mapped(address));
}

}  // namespace
}  // namespace braid::multipath
