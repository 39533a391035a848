// What errors of include/braid/fabric.h say: the cause, with the numbers.
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "braid/fabric.h"
#include "braid/fabric_watcher.h"
#include "fabric/library_pair.h"

namespace braid {
namespace {

class FabricErrorsTest : public test::FabricPair {};

TEST(FabricAddressErrorsTest, AnAddressThatIsNotHereIsNamedWithThoseThatAre) {
  for (const char* provider : {"tcp;ofi_rxm", ""}) {
    const auto opened = Fabric::open({.provider = provider, .addresses = {"192.0.2.1"}});
    ASSERT_FALSE(opened.ok());
    const std::string message = opened.status().message();
    EXPECT_TRUE(message.starts_with(
        "'192.0.2.1' is no address of this host. Name an address that it has: "))
        << message;
    EXPECT_NE(message.find("lo has 127.0.0.1"), std::string::npos) << message;
  }
}

TEST(FabricAddressErrorsTest, ARailDoesNotListenAtEveryAddress) {
  const auto opened = Fabric::open({.provider = "tcp;ofi_rxm", .addresses = {"0.0.0.0"}});
  ASSERT_FALSE(opened.ok());
  EXPECT_TRUE(opened.status().message().starts_with(
      "a rail has one address, and '0.0.0.0' stands for all. Name addresses that peers can reach"))
      << opened.status().message();
}

TEST(FabricLocalErrorsTest, AConnectToAnEngineThatIsGoneSaysThatNothingReachesIt) {
  Fabric engine = Fabric::open({"local"}).value();
  const Fabric::ByteList nobody = Fabric::open({"local"}).value().address().value();
  EXPECT_TRUE(engine.connect(nobody, std::chrono::seconds(60))
                  .status()
                  .message()
                  .starts_with("the peer cannot be reached: "));
}

TEST_F(FabricErrorsTest, WhatIsTooSmallOrTooLargeIsNamedWithTheSizes) {
  std::vector<std::byte> memory(100);
  const uint64_t region =
      static_cast<uint64_t>(owner_->add_region(memory.data(), memory.size()).value());
  uint64_t grant = 0;
  size_t needed_bytes = 0;
  std::byte descriptor[512];
  const auto give = [&](size_t buffer_bytes) {
    return braid_fabric_grant(owner_->get(), region, static_cast<uint64_t>(writers_peer_), 0, 100,
                              &grant, descriptor, buffer_bytes, &needed_bytes);
  };
  EXPECT_EQ(give(10), BRAID_ERROR_ARGUMENT);
  EXPECT_EQ(braid_fabric_last_error(),
            "the descriptor needs " + std::to_string(needed_bytes) +
                " bytes, and the buffer has 10. Give a larger one: 512 bytes are enough");
  EXPECT_EQ(give(needed_bytes), BRAID_OK);
  EXPECT_EQ(owner_->send(writers_peer_, Fabric::ByteList(5000)).message(),
            "the message has 5000 bytes, and the limit is 4032. Write larger things into memory "
            "that the peer has granted");
  EXPECT_EQ(owner_->add_region(memory.data(), SIZE_MAX).status().message(),
            "the region ends beyond the address space");
  EXPECT_EQ(braid_fabric_wait_count(owner_->get(), 12345, 1, 0, nullptr), BRAID_ERROR_ARGUMENT);
  EXPECT_STREQ(braid_fabric_last_error(),
               "immediate 12345 has no owner: it was not acquired here, or is released");
}

TEST_F(FabricErrorsTest, AWordForGpusNeedsADriverThatTheProcessHasLoaded) {
  const auto watcher = FabricWatcher::open(*owner_, FabricWatcher::Memory::kGpu, [](auto&&...) {});
  EXPECT_EQ(watcher.status().message(),
            "a word for GPUs needs the CUDA driver, and this process has not loaded it. Ask for a "
            "word of host memory, or make a context first (cudaFree(0))");
}

/// Whoever asks in a loop until the memory is fenced must not spin.
TEST_F(FabricErrorsTest, WhoRevokesQuarantinedMemoryWaitsForTheAnswer) {
  std::vector<std::byte> memory(4096);
  const auto region = owner_->add_region(memory.data(), memory.size()).value();
  for (int i = 0; i < 50; ++i) {
    const auto grant = owner_->grant(region, writers_peer_, 0, memory.size()).value().grant;
    (void)owner_->revoke(grant, Limit(0));
    EXPECT_EQ(owner_->revoke(grant, kLimit).value(), Fabric::Fence::kFenced) << i;
  }
}

}  // namespace
}  // namespace braid
