// Which pages of a copy's destination are made ahead of it, and that they are.
#include "multipath/staging/fresh_pages.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <string>

#include "fresh_memory.h"
#include "multipath/staging/chunks.h"
#include "multipath/staging/thread_pool.h"

namespace braid::multipath::staging {
namespace {

using test::FreshMemory;

constexpr uint64_t kMiB = 1 << 20;

void make(ThreadPool& pool, const PageRange& pages) { ThreadPool::Task(pool, pages).finish(); }

// Every chunk finds its pages there, and nothing is made beside the copy. Where it ends is looked
// at to the page, since a huge page never lies across advice.
TEST(FreshPages, EveryPageOfTheDestinationIsMadeBeforeItsBytesAndNoOther) {
  ThreadPool pool(3);
  for (const uint64_t begin : {uint64_t{0}, uint64_t{1}, uint64_t{4096}, kMiB, 2 * kMiB - 1,
                               2 * kMiB, 2 * kMiB + 1, 3 * kMiB + 4095})
    for (const uint64_t size : {4 * kMiB, 4 * kMiB + 1, 6 * kMiB - 1, 19 * kMiB + 4097}) {
      SCOPED_TRACE(::testing::Message() << size << " bytes at +" << begin);
      FreshMemory memory(26 * kMiB);
      FreshPages fresh(memory.data() + begin, size);
      uint64_t at = 0;
      for (int index = 0; at < size; ++index) {
        const uint64_t chunk = chunk_bytes(Direction::kDeviceToHost, index, size - at);
        make(pool, fresh.find(at, chunk));
        at += chunk;
        EXPECT_TRUE(memory.is_there(begin, begin + at)) << "chunk " << index;
      }
      EXPECT_TRUE(memory.is_untouched(0, begin / 4096 * 4096));
      EXPECT_TRUE(memory.is_untouched(begin + size, memory.size()));
      for (uint64_t i = 0; i < memory.size(); i += 509) ASSERT_EQ(memory.data()[i], 0) << i;
    }
}

TEST(FreshPages, NoneAreToBeMadeInMemoryThatHasBeenTouched) {
  FreshMemory memory(16 * kMiB);
  std::memset(memory.data(), 1, memory.size());
  FreshPages fresh(memory.data() + 5, memory.size() - 5);
  EXPECT_TRUE(fresh.find(0, 8 * kMiB).is_empty());
  EXPECT_TRUE(fresh.find(8 * kMiB, 8 * kMiB - 5).is_empty());
}

TEST(FreshPages, ABufferThatGrowsHasOnlyItsEndMade) {
  FreshMemory memory(16 * kMiB);
  std::memset(memory.data(), 1, 9 * kMiB);
  FreshPages fresh(memory.data(), memory.size());
  EXPECT_TRUE(fresh.find(0, 8 * kMiB).is_empty());
  ThreadPool pool(1);
  make(pool, fresh.find(8 * kMiB, 8 * kMiB));
  EXPECT_TRUE(memory.is_there(0, memory.size()));
  for (uint64_t i = 0; i < memory.size(); ++i)
    ASSERT_EQ(memory.data()[i], i < 9 * kMiB ? 1 : 0) << i;
}

TEST(FreshPages, WithoutAWholeHugePageThreadsMakeThemAsTheyCopy) {
  FreshMemory memory(6 * kMiB);
  const uint64_t size = 4 * kMiB - 8192;
  EXPECT_TRUE(FreshPages(memory.data() + 4096, size).find(0, size).is_empty());
  EXPECT_FALSE(FreshPages(memory.data() + 4096, size + 4096).find(0, size).is_empty());
}

TEST(FreshPages, MemoryThatMayNotBeWrittenIsLeftAsItIs) {
  ThreadPool pool(2);
  FreshMemory memory(16 * kMiB);
  ASSERT_EQ(mprotect(memory.data() + 4 * kMiB, 4 * kMiB, PROT_READ), 0);
  FreshPages fresh(memory.data(), memory.size());
  const PageRange pages = fresh.find(0, memory.size());
  munmap(memory.data() + 12 * kMiB, 2 * kMiB);
  make(pool, pages);
  EXPECT_TRUE(memory.is_there(0, 4 * kMiB));
  EXPECT_TRUE(memory.is_untouched(4 * kMiB, 8 * kMiB));
  EXPECT_TRUE(memory.is_there(8 * kMiB, 12 * kMiB));
}

// What the kernel counts as huge pages in the mapping at `memory`.
uint64_t huge_page_kib(const void* memory) {
  std::ifstream maps("/proc/self/smaps");
  bool is_here = false;
  for (std::string line; std::getline(maps, line);) {
    unsigned long long begin = 0, end = 0, kib = 0;
    if (std::sscanf(line.c_str(), "%llx-%llx ", &begin, &end) == 2)
      is_here =
          begin <= reinterpret_cast<uintptr_t>(memory) && reinterpret_cast<uintptr_t>(memory) < end;
    else if (is_here && std::sscanf(line.c_str(), "AnonHugePages: %llu", &kib) == 1)
      return kib;
  }
  return 0;
}

TEST(FreshPages, PagesAreHugeWhereTheKernelHasThem) {
  constexpr uint64_t kSize = 8 * kMiB;
  FreshMemory control(kSize), memory(kSize);
  madvise(control.data(), kSize, MADV_HUGEPAGE);
  std::memset(control.data(), 1, kSize);
  if (huge_page_kib(control.data()) != kSize >> 10)
    GTEST_SKIP() << "waived: this kernel gives no huge pages";
  ThreadPool pool(3);
  make(pool, FreshPages(memory.data(), kSize).find(0, kSize));
  EXPECT_EQ(huge_page_kib(memory.data()), kSize >> 10);
}

}  // namespace
}  // namespace braid::multipath::staging
