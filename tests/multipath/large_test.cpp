// Copies of more bytes than 32 bits count. The host's memory is one block of pages over and over,
// so that it takes little, and at the ends and where the count overflows pages of its own.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "support/server.h"

namespace braid::multipath {
namespace {

using test::DeviceBuffer;
using test::HostBuffer;

constexpr uint64_t kOverflow = uint64_t{1} << 32;
constexpr uint64_t kSize = kOverflow + 17;
// A copy that goes astray by any power of two finds other bytes.
constexpr uint64_t kBlock = 61 << 20;
constexpr uint64_t kOwn = 2 << 20;

class RepeatedPages {
 public:
  explicit RepeatedPages(const cuda::Driver& driver) : driver_(driver) {
    constexpr uint64_t kMapped = kOverflow + kOwn;
    size_ = kMapped;
    void* const all = mmap(nullptr, size_, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    const int file = memfd_create("block", MFD_CLOEXEC);
    EXPECT_NE(all, MAP_FAILED);
    EXPECT_EQ(ftruncate(file, kBlock), 0);
    bytes_ = static_cast<uint8_t*>(all);
    for (uint64_t at = 0; at < kMapped;) {
      const uint64_t end = std::min({at + kBlock - at % kBlock, end_of(at), kMapped});
      if (!is_own(at)) {
        EXPECT_NE(mmap(bytes_ + at, end - at, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file,
                       static_cast<off_t>(at % kBlock)),
                  MAP_FAILED);
      }
      at = end;
    }
    close(file);
    MUST(driver_, cuMemHostRegister(bytes_, size_, CU_MEMHOSTREGISTER_PORTABLE));
  }
  ~RepeatedPages() {
    driver_.cuMemHostUnregister(bytes_);
    munmap(bytes_, size_);
  }
  RepeatedPages(const RepeatedPages&) = delete;
  RepeatedPages& operator=(const RepeatedPages&) = delete;

  uint8_t* data() { return bytes_; }

  /// Every byte is that of the block.
  void fill(HostBuffer& block) {
    for (uint64_t at = 0; at < kSize;) {
      const uint64_t end = std::min({at + kBlock - at % kBlock, end_of(at), kSize});
      if (is_own(at) || at < 2 * kBlock)
        std::memcpy(bytes_ + at, block.data() + at % kBlock, end - at);
      at = end;
    }
  }

 private:
  static bool is_own(uint64_t at) { return at < kOwn || at >= kOverflow - kOwn; }
  static uint64_t end_of(uint64_t at) {
    return at < kOwn ? kOwn : at < kOverflow - kOwn ? kOverflow - kOwn : UINT64_MAX;
  }

  const cuda::Driver& driver_;
  uint8_t* bytes_ = nullptr;
  uint64_t size_ = 0;
};

class LargeTest : public test::ServerTest {
 protected:
  void expect_both_ways_right(MoverChoice mover) {
    Options options = every_size();
    options.mover = mover;
    auto engine = open_engine(options);
    HostBuffer block(driver(), kBlock);
    block.fill_random(71);
    RepeatedPages source(driver()), landing(driver());
    source.fill(block);
    DeviceBuffer device(driver(), kSize);
    const CUstream stream = new_stream();
    ASSERT_EQ(engine->submit({Direction::kHostToDevice, source.data(), device.at(), kSize, stream}),
              Verdict::kAccelerated);
    synchronize(stream);
    std::vector<uint8_t> seen(kBlock);
    for (uint64_t at = 0; at < kSize; at += kBlock) {
      const uint64_t size_bytes = std::min(kBlock, kSize - at);
      MUST(driver(), cuMemcpyDtoH(seen.data(), device.at(at), size_bytes));
      ASSERT_EQ(std::memcmp(seen.data(), block.data(), size_bytes), 0) << "to the device, " << at;
    }
    ASSERT_EQ(
        engine->submit({Direction::kDeviceToHost, landing.data(), device.at(), kSize, stream}),
        Verdict::kAccelerated);
    synchronize(stream);
    for (uint64_t at = 0; at < kSize; at += kBlock)
      ASSERT_EQ(std::memcmp(landing.data() + at, block.data(), std::min(kBlock, kSize - at)), 0)
          << "to the host, " << at;
    uint64_t carried = 0;
    for (const PathCount& count : engine->collect(5000)) carried += count.bytes;
    EXPECT_EQ(carried, 2 * kSize);
  }
};

TEST_F(LargeTest, CountsOfBytesAreWiderThan32BitsInKernels) {
  expect_both_ways_right(MoverChoice::kKernel);
}
TEST_F(LargeTest, CountsOfBytesAreWiderThan32BitsForCopyEngines) {
  expect_both_ways_right(MoverChoice::kCopyEngine);
}

}  // namespace
}  // namespace braid::multipath
