// Processes that end by themselves while an engine of theirs is open: its thread and the program's
// may be in libfabric while that is being destroyed.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string>

#include "braid/fabric.h"
#include "fabric/order.h"

namespace braid {
namespace {

using std::chrono::seconds;

constexpr int kProcesses = 3;  // one after the other
constexpr seconds kLimit{60};

struct Case {
  std::string provider, how;
};
void PrintTo(const Case& each, std::ostream* out) { *out << each.provider << ", " << each.how; }

class ExitTest : public testing::TestWithParam<Case> {
 protected:
  static pid_t start(const std::string& address) {
    const pid_t process = fork();
    if (process != 0) return process;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    execl(BRAID_FABRIC_LEAVER, BRAID_FABRIC_LEAVER, GetParam().provider.c_str(), address.c_str(),
          GetParam().how.c_str(), nullptr);
    _exit(127);
  }
};

TEST_P(ExitTest, AProcessThatEndsWithAnOpenEngineEndsWellAndItsPeerHears) {
  auto opened = Fabric::open({GetParam().provider, {"127.0.0.1"}});
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  Fabric fabric = std::move(opened).value();
  const std::string address = fabric::test::to_hex(fabric.address().value());
  constexpr size_t kBytes = 1 << 20;
  const auto [first, region] = fabric.allocate_memory(kBytes).value();  // with `local`: mapped
  const auto* memory = static_cast<const std::byte*>(first);
  for (int i = 0; i < kProcesses; ++i) {
    const pid_t process = start(address);
    const auto peer = fabric.accept(kLimit).value();
    ASSERT_TRUE(peer) << "it does not even connect";
    const auto granted = fabric.grant(region, *peer, 0, kBytes).value();
    ASSERT_TRUE(fabric.send(*peer, granted.descriptor).ok());
    ASSERT_TRUE(fabric.receive(kLimit).value()) << "it does not begin";
    ASSERT_TRUE(fabric.send(*peer, Fabric::ByteList(1)).ok());
    int status = 0;
    ASSERT_EQ(waitpid(process, &status, 0), process);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
        << "signal " << WTERMSIG(status) << ", exit code " << WEXITSTATUS(status);
    const auto lost = fabric.wait_lost(kLimit).value();
    ASSERT_TRUE(lost) << "nobody says that it is gone";
    EXPECT_EQ(lost->peer, *peer);
    ASSERT_TRUE(fabric.disconnect(*peer).ok());
    EXPECT_EQ(fabric.revoke(granted.grant, kLimit).value(), Fabric::Fence::kFenced);
  }
  EXPECT_TRUE(std::all_of(memory, memory + kBytes, [](std::byte byte) {
    return byte == std::byte{0} || byte == std::byte{9};
  }));
}

const Case kCases[] = {
    {"tcp;ofi_rxm", "global"}, {"tcp;ofi_rxm", "leaked"}, {"tcp;ofi_rxm", "waiting"},
    {"net", "global"},         {"net", "leaked"},         {"net", "waiting"},
    {"shm", "global"},         {"shm", "leaked"},         {"shm", "waiting"},
    {"local", "global"},       {"local", "leaked"},       {"local", "waiting"}};

INSTANTIATE_TEST_SUITE_P(Providers, ExitTest, testing::ValuesIn(kCases), [](const auto& each) {
  return each.param.provider.substr(0, 3) + "_" + each.param.how;
});

}  // namespace
}  // namespace braid
