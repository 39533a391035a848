// TCP: two domains of one process are connected to the same address, and one of them gives it up.
// The kernel knows their connections by that address alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "fabric/contract.h"
#include "fabric/ofi/domain.h"

namespace braid::fabric {
namespace {

using test::End;

class SharedAddressTest : public testing::TestWithParam<std::string> {
 protected:
  struct Writer : End {
    uint32_t peer = 0, region = 0;
  };

  void SetUp() override {
    for (End* end : {static_cast<End*>(&one_), static_cast<End*>(&other_), &target_}) {
      auto opened = ofi::open_domain(*ofi::find_quirks(GetParam()), "127.0.0.1");
      ASSERT_TRUE(opened.ok()) << opened.status().message();
      end->domain = std::move(opened).value();
    }
    into_ = target_.domain->add_region(buffers_, Access::kLocal).value();
    for (uint64_t i = 0; i < kBuffers; ++i)
      ASSERT_TRUE(target_.domain->post_receive(
          into_, MutableBytes(buffers_).subspan(i * kBufferBytes, kBufferBytes), i));
    for (Writer* writer : {&one_, &other_}) {
      writer->peer = writer->domain->connect(target_.domain->address()).value();
      writer->region = writer->domain->add_region(message_, Access::kLocal).value();
      ASSERT_TRUE(arrives(*writer, 1));
    }
  }
  bool wait(const std::function<bool()>& until, bool is_target_there = true) {
    for (test::Patience patience(kLooks); !patience.is_over();) {
      if (until()) return true;
      one_.poll();
      other_.poll();
      if (is_target_there) target_.poll();
    }
    return until();
  }
  bool arrives(Writer& writer, uint64_t context) {
    const size_t before = target_.received_bytes.size();
    const auto post = [&] {
      return writer.domain->post_send(writer.peer, writer.region, message_, context);
    };
    return wait(post) && wait([&] { return writer.ended.contains(context); }) &&
           writer.ended[context] == std::vector{true} &&
           wait([&] { return target_.received_bytes.size() == before + 1; }) && is_right(before);
  }

  /// Buffers are filled in their order.
  bool is_right(size_t buffer) {
    const Bytes come = Bytes(buffers_).subspan(buffer * kBufferBytes, message_.size());
    return target_.received_bytes[buffer] == message_.size() &&
           std::equal(come.begin(), come.end(), message_.begin());
  }
  void post_large_writes() {
    const uint32_t into = target_.domain->add_region(large_, Access::kRemoteWrite).value();
    const RemoteRange range = target_.domain->remote_range(into);
    for (Writer* writer : {&one_, &other_}) {
      Write write;
      write.peer = writer->peer;
      write.region = writer->domain->add_region(source_, Access::kLocal).value();
      write.source = source_;
      write.target_address = range.base;
      write.target_key = range.key;
      write.context = 2;
      ASSERT_TRUE(wait([&] { return writer->domain->post_write(write); }, false));
    }
  }
  void expect_failed(Writer& writer) {
    ASSERT_TRUE(wait([&] { return writer.ended.contains(2); }, false));
    EXPECT_EQ(writer.ended[2], std::vector{false});
  }

  static constexpr int kLooks = 2'000'000;
  static constexpr size_t kBuffers = 16, kBufferBytes = 4096;
  std::vector<std::byte> buffers_ = std::vector<std::byte>(kBuffers * kBufferBytes);
  uint32_t into_ = 0;
  std::vector<std::byte> message_ = std::vector<std::byte>(100, std::byte{7});
  std::vector<std::byte> source_ = std::vector<std::byte>(32 << 20), large_{source_};
  Writer one_, other_;
  End target_;
};

TEST_P(SharedAddressTest, WhatOneGivesUpTheOtherKeeps) {
  one_.domain->abandon(one_.peer, Absence::kSilent);
  for (uint64_t context = 2; context < 8; ++context) EXPECT_TRUE(arrives(other_, context));
  one_.domain->disconnect(one_.peer);
  EXPECT_TRUE(arrives(other_, 8));
}

TEST_P(SharedAddressTest, ANewLinkToTheAddressOutlivesTheOldOne) {
  const uint32_t old = one_.peer;
  one_.peer = one_.domain->connect(target_.domain->address()).value();
  EXPECT_TRUE(arrives(one_, 2));
  one_.domain->abandon(old, Absence::kSilent);
  one_.domain->disconnect(old);
  EXPECT_TRUE(arrives(one_, 3));
}

/// The target takes nothing more, and the write has no room in between.
TEST_P(SharedAddressTest, WhatIsUnderWayEndsOnceAllHaveGivenItUp) {
  post_large_writes();
  one_.domain->abandon(one_.peer, Absence::kSilent);
  other_.domain->abandon(other_.peer, Absence::kSilent);
  expect_failed(one_);
  expect_failed(other_);
}

TEST_P(SharedAddressTest, WhatIsUnderWayEndsOnceTheOtherHasLeft) {
  post_large_writes();
  one_.domain->abandon(one_.peer, Absence::kSilent);
  other_.domain->disconnect(other_.peer);
  expect_failed(one_);
}

INSTANTIATE_TEST_SUITE_P(Providers, SharedAddressTest, testing::Values("tcp;ofi_rxm", "net"),
                         [](const testing::TestParamInfo<std::string>& provider) {
                           return provider.param.substr(0, 3);
                         });

}  // namespace
}  // namespace braid::fabric
