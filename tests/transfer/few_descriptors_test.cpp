// Descriptors by which the engine waits, and that the system refuses to make while it is opened: an
// error says so, or the engine does without. Nothing hangs.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "braid/transfer.h"
#include "transfer/pattern.h"

namespace {

std::atomic<int> calls{0};
std::atomic<int> refused{-1};  // its number

/// Of braid's calls one is refused; those of libfabric pass.
bool is_refused(void* caller) {
  Dl_info about{};
  const bool is_braids = dladdr(caller, &about) != 0 && about.dli_fname != nullptr &&
                         std::strstr(about.dli_fname, "libbraid") != nullptr;
  if (!is_braids || calls++ != refused) return false;
  errno = EMFILE;
  return true;
}

}  // namespace

// In place of the C library's, for all of this process.
extern "C" __attribute__((visibility("default"))) int eventfd(unsigned count, int flags) noexcept {
  if (is_refused(__builtin_return_address(0))) return -1;
  return static_cast<int>(syscall(SYS_eventfd2, count, flags));
}
extern "C" __attribute__((visibility("default"))) int epoll_create1(int flags) noexcept {
  if (is_refused(__builtin_return_address(0))) return -1;
  return static_cast<int>(syscall(SYS_epoll_create1, flags));
}
extern "C" __attribute__((visibility("default"))) int timerfd_create(int clock,
                                                                     int flags) noexcept {
  if (is_refused(__builtin_return_address(0))) return -1;
  return static_cast<int>(syscall(SYS_timerfd_create, clock, flags));
}

namespace braid::transfer::test {
namespace {

namespace fs = std::filesystem;
constexpr size_t kBytes = 1 << 20;
constexpr std::chrono::microseconds kLimit{20'000'000};

/// Opens a file, which threads do, and reads it, which the kernel does or threads.
void read_a_file(Transfer& transfer, const fs::path& root) {
  ASSERT_TRUE(transfer.export_folder("store", root.string(), {true, false}).ok());
  const auto own = transfer.open_segment(transfer.name().value(), kLimit);
  ASSERT_TRUE(own.ok()) << own.status().message();
  const auto file = transfer.open_file(own.value(), "store/model", {true, false}, kLimit);
  ASSERT_TRUE(file.ok()) << file.status().message();
  std::vector<std::byte> bytes(kBytes);
  ASSERT_TRUE(transfer.register_memory(bytes.data(), kBytes, {}).ok());
  const auto batch =
      transfer.submit({{file.value(), Transfer::Operation::kRead, bytes.data(), 0, kBytes}})
          .value();
  ASSERT_TRUE(transfer.wait(batch, kLimit).value()) << "it hangs";
  EXPECT_EQ(wrong_at(bytes, 1), std::nullopt);
}

TEST(TransferFewDescriptors, EachThatIsRefusedIsAnErrorOrDoneWithout) {
  const fs::path root = fs::path(testing::TempDir()) / ("braid-few-" + std::to_string(getpid()));
  fs::create_directories(root);
  std::vector<std::byte> bytes(kBytes);
  fill(bytes, 1);
  std::ofstream(root / "model", std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), kBytes);
  int errors = 0;
  for (int number = 0;; ++number) {
    SCOPED_TRACE("call " + std::to_string(number));
    calls = 0;
    refused = number;
    auto opened = Transfer::open({});
    const bool was_refused = calls > number;
    refused = -1;
    if (opened.ok()) {
      ASSERT_NO_FATAL_FAILURE(read_a_file(opened.value(), root));
    } else {
      ++errors;
      EXPECT_NE(opened.status().message().find("descriptors"), std::string::npos)
          << opened.status().message();
    }
    if (!was_refused) break;
  }
  EXPECT_GT(errors, 0);
  fs::remove_all(root);
}

}  // namespace
}  // namespace braid::transfer::test
