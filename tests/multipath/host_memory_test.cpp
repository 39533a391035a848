// Kinds of pinned host memory: registered in pieces, write-combined, read-only.
#include <sys/mman.h>

#include <cstring>
#include <random>

#include "support/server.h"

namespace braid::multipath {
namespace {

using test::DeviceBuffer;
using test::HostBuffer;

constexpr uint64_t kSize = 8 << 20;

class HostMemoryTest : public test::ServerTest {
 protected:
  void SetUp() override {
    ServerTest::SetUp();
    if (IsSkipped()) return;
    engine_ = open_engine();
    device_ = std::make_unique<DeviceBuffer>(driver(), kSize);
    stream_ = new_stream();
    pages_ = static_cast<uint8_t*>(
        mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    std::mt19937 random(41);
    for (uint64_t at = 0; at < kSize; ++at) pages_[at] = static_cast<uint8_t>(random());
  }
  void TearDown() override {
    if (pages_ != nullptr) munmap(pages_, kSize);
  }

  std::string submit(Direction direction, void* host) {
    return verdict_name(engine_->submit({direction, host, device_->at(), kSize, stream_}));
  }
  // What lies on the device, fetched natively.
  bool device_holds(const uint8_t* bytes) {
    std::vector<uint8_t> got(kSize);
    synchronize(stream_);
    MUST(driver(), cuMemcpyDtoH(got.data(), device_->at(), kSize));
    return std::memcmp(got.data(), bytes, kSize) == 0;
  }
  void pin(uint64_t offset, uint64_t size_bytes, unsigned flags = 0) {
    MUST(driver(), cuMemHostRegister(pages_ + offset, size_bytes, flags));
  }
  void unpin(uint64_t offset) { MUST(driver(), cuMemHostUnregister(pages_ + offset)); }

  std::unique_ptr<Engine> engine_;
  std::unique_ptr<DeviceBuffer> device_;
  CUstream stream_ = nullptr;
  uint8_t* pages_ = nullptr;
};

// Natively it is CUDA_ERROR_INVALID_VALUE (H200, driver 580), and so it must be under braid.
TEST_F(HostMemoryTest, ACopyThatCrossesRegistrationsIsTheDriversToRefuse) {
  pin(0, kSize / 2);
  pin(kSize / 2, kSize / 2);
  for (const Direction direction : {Direction::kHostToDevice, Direction::kDeviceToHost})
    EXPECT_EQ(submit(direction, pages_), "not_linear");
  EXPECT_EQ(driver().cuMemcpyHtoDAsync(device_->at(), pages_, kSize, stream_),
            CUDA_ERROR_INVALID_VALUE);
  unpin(0);
  unpin(kSize / 2);
}

TEST_F(HostMemoryTest, ABatchMayUseManyRegistrations) {
  constexpr uint64_t kPart = kSize / 4;
  for (uint64_t at = 0; at < kSize; at += kPart)
    pin(at, kPart, at == kPart ? CU_MEMHOSTREGISTER_READ_ONLY : 0);
  std::vector<Segment> segments;
  for (uint64_t at = 0; at < kSize; at += kPart)
    segments.push_back({pages_ + at, device_->at() + at, kPart});
  const Batch batch{Direction::kHostToDevice, segments, stream_};
  EXPECT_STREQ(verdict_name(engine_->submit(batch).verdict), "accelerated");
  EXPECT_TRUE(device_holds(pages_));
  for (uint64_t at = 0; at < kSize; at += kPart) unpin(at);
}

TEST_F(HostMemoryTest, ACopyThatLeavesPinnedMemoryIsTheDriversToRefuse) {
  pin(0, kSize / 4);
  pin(kSize / 2, kSize / 2);
  EXPECT_EQ(submit(Direction::kHostToDevice, pages_), "not_linear");
  EXPECT_EQ(driver().cuMemcpyHtoDAsync(device_->at(), pages_, kSize, stream_),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(submit(Direction::kHostToDevice, pages_ + kSize / 4), "pageable");
  unpin(0);
  unpin(kSize / 2);
}

TEST_F(HostMemoryTest, MemoryMayBeRegisteredAgainBetweenCopies) {
  for (const uint64_t first : {kSize / 2, kSize, kSize / 4}) {
    pin(0, first);
    EXPECT_EQ(submit(Direction::kHostToDevice, pages_),
              first == kSize ? "accelerated" : "not_linear");
    synchronize(stream_);
    unpin(0);
  }
  EXPECT_TRUE(device_holds(pages_));
}

TEST_F(HostMemoryTest, WriteCombinedMemoryIsAcceleratedBothWays) {
  void* memory = nullptr;
  MUST(driver(),
       cuMemHostAlloc(&memory, kSize, CU_MEMHOSTALLOC_WRITECOMBINED | CU_MEMHOSTALLOC_PORTABLE));
  std::memcpy(memory, pages_, kSize);
  EXPECT_EQ(submit(Direction::kHostToDevice, memory), "accelerated");
  EXPECT_TRUE(device_holds(pages_));
  std::memset(memory, 0, kSize);
  EXPECT_EQ(submit(Direction::kDeviceToHost, memory), "accelerated");
  synchronize(stream_);
  EXPECT_EQ(std::memcmp(memory, pages_, kSize), 0);
  MUST(driver(), cuMemFreeHost(memory));
}

TEST_F(HostMemoryTest, ReadOnlyMemoryIsSentButNeverWritten) {
  CUdevice device = 0;
  int is_supported = 0;
  MUST(driver(), cuDeviceGet(&device, 0));
  MUST(driver(), cuDeviceGetAttribute(
                     &is_supported, CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, device));
  if (is_supported == 0) GTEST_SKIP() << "waived: no read-only registration here";
  pin(0, kSize, CU_MEMHOSTREGISTER_READ_ONLY);
  EXPECT_EQ(submit(Direction::kHostToDevice, pages_), "accelerated");
  EXPECT_TRUE(device_holds(pages_));
  EXPECT_EQ(submit(Direction::kDeviceToHost, pages_), "not_linear");
  unpin(0);
}

}  // namespace
}  // namespace braid::multipath
