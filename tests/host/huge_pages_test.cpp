// Memory that devices use by themselves: where it begins, who inherits it, and what is left of it.
#include "host/huge_pages.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

namespace braid {
namespace {

constexpr size_t kSizeBytes = 3 * kHugePageBytes + 4096;

HugePages map_pages(const HugePagesKind& kind = {}) {
  auto pages = HugePages::map(kSizeBytes, kind);
  EXPECT_TRUE(pages.ok());
  return std::move(pages).value();
}

/// Whether something is mapped at this address, be it without any right.
bool is_taken(std::byte* address) {
  void* mapped =
      mmap(address, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  if (mapped == MAP_FAILED) return errno == EEXIST;
  munmap(mapped, 4096);
  return false;
}

/// The signal that ends a child process that reads there; 0: none.
int signal_of_a_child_that_reads(const volatile std::byte* address) {
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL);
    _exit(static_cast<int>(*address));
  }
  int how = 0;
  waitpid(child, &how, 0);
  return WIFSIGNALED(how) ? WTERMSIG(how) : 0;
}

TEST(HugePages, BeginWhereAHugePageMayAndAreZero) {
  for (const HugePagesKind kind :
       {HugePagesKind{}, HugePagesKind{.is_reserved = false, .node = 0}}) {
    const HugePages pages = map_pages(kind);
    ASSERT_EQ(pages.bytes().size(), kSizeBytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(pages.bytes().data()) % kHugePageBytes, 0);
    EXPECT_TRUE(std::all_of(pages.bytes().begin(), pages.bytes().end(),
                            [](std::byte byte) { return byte == std::byte{0}; }));
    pages.bytes().back() = std::byte{1};
  }
}

TEST(HugePages, AreNotThereInAChildProcess) {
  const HugePages pages = map_pages();
  EXPECT_EQ(signal_of_a_child_that_reads(pages.bytes().data()), SIGSEGV);
}

TEST(HugePages, AreUnmappedInTheEnd) {
  std::byte* first = map_pages().bytes().data();
  EXPECT_FALSE(is_taken(first));
}

TEST(HugePages, StayMappedIfSomethingMayStillUseThem) {
  std::byte* first = nullptr;
  {
    HugePages pages = map_pages();
    first = pages.bytes().data();
    pages.leave_mapped();
    EXPECT_TRUE(pages.bytes().empty());
  }
  *first = std::byte{1};
  EXPECT_EQ(*first, std::byte{1});
}

TEST(HugePages, LeaveTheirAddressesTaken) {
  std::byte *first = nullptr, *last = nullptr;
  {
    HugePages pages = map_pages();
    first = pages.bytes().data();
    last = first + kSizeBytes - 4096;
    pages.leave_addresses();
  }
  EXPECT_TRUE(is_taken(first) && is_taken(last));
  EXPECT_DEATH(*first = std::byte{1}, "");
}

}  // namespace
}  // namespace braid
