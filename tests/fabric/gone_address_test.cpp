// shm: an address of a process that has ended, as a directory may still have it. libfabric would
// keep a place for it, which the next peer gets too.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <fstream>
#include <string>

#include "fabric/ofi/doorbell.h"
#include "fabric/ofi/imports.h"
#include "fabric/ofi/library.h"
#include "fabric/two_processes.h"

namespace braid::fabric {
namespace {

using test::kSecondNs;
using test::Peer;

/// libfabric's next opening of a file in /dev/shm finds this one gone.
std::string file_that_goes;
decltype(&shm_open) open_file = nullptr;  // as libfabric would call it
int open_gone_file(const char* name, int flags, mode_t mode) {
  if (name == file_that_goes) shm_unlink(name);
  return open_file(name, flags, mode);
}

class GoneAddressTest : public test::ProcessTest {
 protected:
  /// Of an engine that was closed.
  static Address gone_address(uint64_t engine) {
    auto domain = test::open_process_rail("shm");
    std::vector<std::unique_ptr<Domain>> rails;
    rails.push_back(std::move(domain).value());
    EngineOptions options;
    options.engine = engine;
    return Engine::open(std::move(rails), options).value()->address();
  }
  /// Of a process that has ended. (This process takes names that it has given up again.)
  Address others_gone_address(uint64_t engine) const {
    const pid_t child = fork();
    if (child == 0) _exit(0);
    waitpid(child, nullptr, 0);
    const std::string endpoint = ofi::endpoint_of(std::to_string(child) + ":0:0");
    const Bytes name = std::as_bytes(std::span(endpoint.c_str(), endpoint.size() + 1));
    Address address = engine_->address();
    address.engine = engine;
    address.rails[0].name = {name.begin(), name.end()};
    return address;
  }
  void expect_refused(const Address& gone) {
    const Result<uint64_t> refused = engine_->connect(gone, now_ns() + kSecondNs);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.status().message(),
              "shm: the peer's engine is closed, or its process has ended. Connect to an engine "
              "that runs");
  }
  void expect_no_harm(const Address& gone);
};

void GoneAddressTest::expect_no_harm(const Address& gone) {
  for (int visit = 0; visit < 3; ++visit) {
    std::unique_ptr<Peer> process;
    const uint64_t peer = start(process);
    constexpr size_t kBytes = 10'000;
    test::ProcessMemory memory(GetParam(), 0, kBytes);
    const Job job = order(peer, memory.bytes(), 1);
    EXPECT_FALSE(engine_->connect(gone, now_ns() + kSecondNs).ok());
    ASSERT_TRUE(wait([&] { return count(job) == immediates_of_write(kBytes); }));
    EXPECT_TRUE(memory.is_all(std::byte{1}));
    ASSERT_TRUE(engine_->disconnect(peer).ok());
    ASSERT_TRUE(wait([&] { return engine_->peers().empty(); }));
    EXPECT_TRUE(engine_->remove_region(job.region).ok());
  }
}

TEST_P(GoneAddressTest, IsRefusedAndHarmsNoOtherPeer) {
  const Address first = gone_address(71), second = gone_address(72);
  for (const Address& gone : {first, second}) expect_refused(gone);
  expect_no_harm(first);
}

/// After this process has looked whether it is there.
TEST_P(GoneAddressTest, ThatGoesWhileItIsConnectedToHarmsNoOtherPeer) {
  const auto before = ofi::replace_import(ofi::library().value()->handle, "shm_open",
                                          reinterpret_cast<void*>(open_gone_file));
  open_file = reinterpret_cast<decltype(open_file)>(before.value());
  const Address first = others_gone_address(73), second = others_gone_address(74);
  for (const Address& gone : {first, second}) {
    file_that_goes = ofi::file_of(gone.rails[0].name);
    std::ofstream("/dev/shm/" + file_that_goes).put(0);
    expect_refused(gone);
  }
  expect_no_harm(first);
}

INSTANTIATE_TEST_SUITE_P(Providers, GoneAddressTest, testing::Values("shm"),
                         test::name_of_provider);

}  // namespace
}  // namespace braid::fabric
