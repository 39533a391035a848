// TCP: a writer's connection is reset in the middle of a write (its process was killed, say), and
// the door is closed before anybody has looked.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <string>
#include <vector>

#include "fabric/contract.h"
#include "fabric/ofi/connections.h"
#include "fabric/ofi/domain.h"

namespace braid::fabric {
namespace {

using test::End;

class ResetTest : public testing::TestWithParam<std::string> {
 protected:
  static constexpr int kLooks = 2'000'000;

  void SetUp() override {
    for (End* end : {&writer_, &target_}) {
      auto opened = ofi::open_domain(*ofi::find_quirks(GetParam()), "127.0.0.1");
      ASSERT_TRUE(opened.ok()) << opened.status().message();
      end->domain = std::move(opened).value();
    }
    door_ = target_.domain->open_door().value();
    const uint32_t into = target_.domain->add_door_region(door_, memory_).value();
    const RemoteRange range = target_.domain->remote_range(into);
    write_.peer = writer_.domain->connect(target_.domain->door_address(door_)).value();
    write_.region = writer_.domain->add_region(source_, Access::kLocal).value();
    write_.source = source_;
    write_.target_address = range.base;
    write_.target_key = range.key;
  }
  bool wait(const std::function<bool()>& until) {
    for (int look = 0; look < kLooks && !until(); ++look) {
      writer_.poll();
      target_.poll();
    }
    return until();
  }
  void reset_connections() {
    sockaddr nowhere{};
    nowhere.sa_family = AF_UNSPEC;
    const auto connections = ofi::Connections().outgoing_to(target_.domain->door_address(door_));
    EXPECT_FALSE(connections.empty());
    for (const ofi::Connection& connection : connections)
      EXPECT_EQ(connect(connection.descriptor, &nowhere, sizeof nowhere), 0);
  }

  std::vector<std::byte> source_ = std::vector<std::byte>(32 << 20, std::byte{1});
  std::vector<std::byte> memory_ = std::vector<std::byte>(32 << 20);
  End writer_, target_;
  uint32_t door_ = 0;
  Write write_;
};

TEST_P(ResetTest, InTheMiddleOfAWriteAndTheDoorIsClosedThen) {
  ASSERT_TRUE(wait([&] { return writer_.domain->post_write(write_); }));
  ASSERT_TRUE(wait([&] { return memory_.front() == std::byte{1}; }));
  ASSERT_NE(memory_.back(), std::byte{1}) << "it has ended already";
  reset_connections();
  target_.domain->close_door(door_);
  EXPECT_TRUE(wait([&] { return target_.domain->drain_door(door_) == Drain::kOver; }));
}

TEST_P(ResetTest, InTheMiddleOfAWriteAndTheDomainIsClosedThen) {
  ASSERT_TRUE(wait([&] { return writer_.domain->post_write(write_); }));
  ASSERT_TRUE(wait([&] { return memory_.front() == std::byte{1}; }));
  ASSERT_NE(memory_.back(), std::byte{1}) << "it has ended already";
  reset_connections();
  target_.domain.reset();
}

INSTANTIATE_TEST_SUITE_P(Providers, ResetTest, testing::Values("tcp;ofi_rxm", "net"),
                         [](const testing::TestParamInfo<std::string>& provider) {
                           return provider.param.substr(0, 3);
                         });

}  // namespace
}  // namespace braid::fabric
