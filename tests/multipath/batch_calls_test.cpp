// How many calls of the driver a batch costs: they grow with the allocations that it names, and not
// with its entries.
#include "bench/cpu/metered_driver.h"
#include "multipath/memory_fixture.h"

namespace braid::multipath {
namespace {

using bench::meters;
using test::HostBuffer;

constexpr size_t kMostEntries = 2000;
constexpr uint64_t kEntryBytes = 4 << 10;

class BatchCallsTest : public test::MemoryTest {
 protected:
  void SetUp() override {
    ServerTest::SetUp();
    if (IsSkipped()) return;
    metered_ = bench::metered(driver());
    engine_ = std::move(Engine::open(metered_, every_size())).value();
    engine_->limit_paths(2);  // a path more is some calls more
    host_ = std::make_unique<HostBuffer>(driver(), kMostEntries * kEntryBytes);
    stream_ = new_stream();
  }

  // Of a batch whose entries lie in the allocations in turn, as those of a KV cache do.
  uint64_t calls_of(size_t entries, const std::vector<CUdeviceptr>& memory) {
    std::vector<Segment> segments;
    for (size_t i = 0; i < entries; ++i)
      segments.push_back({host_->data() + (entries - 1 - i) * kEntryBytes,
                          memory[i % memory.size()] + i / memory.size() * kEntryBytes,
                          kEntryBytes});
    for (auto& meter : meters) meter.calls = 0;
    EXPECT_EQ(engine_->submit(Batch{Direction::kHostToDevice, segments, stream_}),
              Verdict::kAccelerated);
    uint64_t calls = 0;
    for (const auto& meter : meters) calls += meter.calls;
    synchronize(stream_);
    return calls;
  }

  CUstream stream_ = nullptr;

 private:
  cuda::Driver metered_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<HostBuffer> host_;
};

TEST_F(BatchCallsTest, TheyDoNotGrowWithTheEntries) {
  for (const size_t allocations : {1, 3, 17, 160}) {
    std::vector<CUdeviceptr> memory(allocations);
    for (CUdeviceptr& one : memory)
      MUST(driver(), cuMemAlloc(&one, (kMostEntries / allocations + 1) * kEntryBytes));
    EXPECT_EQ(calls_of(kMostEntries, memory), calls_of(kMostEntries / 4, memory))
        << allocations << " allocations";
    for (const CUdeviceptr one : memory) MUST(driver(), cuMemFree(one));
  }
}

// Who may touch a pool is asked once.
TEST_F(BatchCallsTest, AnotherAllocationOfAPoolIsOneQuestionMore) {
  const CUmemoryPool pool = new_pool();
  std::vector<CUmemAccessDesc> everyone;
  for (int gpu = 0; gpu < gpus(); ++gpu) everyone.push_back(test::access_by(gpu));
  cuMemPoolSetAccess_(pool, everyone.data(), everyone.size());
  std::vector<CUdeviceptr> memory;
  for (int i = 0; i < 20; ++i)
    memory.push_back(allocate(pool, kMostEntries / 20 * kEntryBytes, stream_));
  const std::vector<CUdeviceptr> few(memory.begin(), memory.begin() + 2);
  (void)calls_of(40, few);  // relays that have been idle would not pay
  EXPECT_EQ(calls_of(40, memory), calls_of(40, few) + 18);
  for (const CUdeviceptr one : memory) free(one, stream_);
  synchronize(stream_);
}

}  // namespace
}  // namespace braid::multipath
