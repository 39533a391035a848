// libfabric's table of peers over shm is full: an error says so before libfabric faults.
#include <gtest/gtest.h>

#include "fabric/ofi/domain.h"
#include "fabric/ofi/quirks.h"

namespace braid::fabric {
namespace {

using ofi::open_domain;

class FullTableTest : public testing::Test {
 protected:
  void SetUp() override {
    auto opened = open_domain(*ofi::find_quirks("shm"), "");
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    domain_ = std::move(opened).value();
    other_ = open_domain(*ofi::find_quirks("shm"), "").value();
  }
  /// A peer is two connections of a domain: one for messages, one to its door.
  Result<uint32_t> connect() { return domain_->connect(other_->address()); }
  void expect_full() {
    const auto refused = connect();
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(
        refused.status().message(),
        "this engine takes no further peer over shm: libfabric's table of peers has room for "
        "63 at once, or 126 that come one after the other. Close this engine and open another, "
        "or use tcp;ofi_rxm");
  }

  std::unique_ptr<Domain> domain_, other_;
};

TEST_F(FullTableTest, OfPeersThatComeOneAfterTheOther) {
  for (int connections = 0; connections < 2 * 126; ++connections) {
    const auto peer = connect();
    ASSERT_TRUE(peer.ok()) << connections << ": " << peer.status().message();
    domain_->disconnect(peer.value());
  }
  expect_full();
}

TEST_F(FullTableTest, OfPeersThatAreThereAtOnce) {
  for (int connections = 0; connections < 2 * 63; ++connections) {
    const auto peer = connect();
    ASSERT_TRUE(peer.ok()) << connections << ": " << peer.status().message();
  }
  expect_full();
}

}  // namespace
}  // namespace braid::fabric
