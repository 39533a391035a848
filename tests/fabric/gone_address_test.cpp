// shm: an address of a process that has ended, as a directory may still have it. libfabric would
// keep a place for it, which the next peer gets too.
#include <gtest/gtest.h>

#include "fabric/two_processes.h"

namespace braid::fabric {
namespace {

using test::kSecondNs;
using test::Peer;

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
};

TEST_P(GoneAddressTest, IsRefusedAndHarmsNoOtherPeer) {
  const Address first = gone_address(71), second = gone_address(72);
  for (const Address& gone : {first, second}) {
    const Result<uint64_t> refused = engine_->connect(gone, now_ns() + kSecondNs);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.status().message(),
              "shm: the peer's engine is closed, or its process has ended. Connect to an engine "
              "that runs");
  }
  for (int visit = 0; visit < 3; ++visit) {
    std::unique_ptr<Peer> process;
    const uint64_t peer = start(process);
    constexpr size_t kBytes = 10'000;
    test::ProcessMemory memory(GetParam(), 0, kBytes);
    const Job job = order(peer, memory.bytes(), 1);
    EXPECT_FALSE(engine_->connect(first, now_ns() + kSecondNs).ok());
    ASSERT_TRUE(wait([&] { return count(job) == immediates_of_write(kBytes); }));
    EXPECT_TRUE(memory.is_all(std::byte{1}));
    ASSERT_TRUE(engine_->disconnect(peer).ok());
    ASSERT_TRUE(wait([&] { return engine_->peers().empty(); }));
    EXPECT_TRUE(engine_->remove_region(job.region).ok());
  }
}

INSTANTIATE_TEST_SUITE_P(Providers, GoneAddressTest, testing::Values("shm"),
                         test::name_of_provider);

}  // namespace
}  // namespace braid::fabric
