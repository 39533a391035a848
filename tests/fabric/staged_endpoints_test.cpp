// GPU memory over a wire that has several endpoints.
#include <gtest/gtest.h>

#include "fabric/staged/domain.h"
#include "fabric/staged_fixture.h"

namespace braid::fabric {
namespace {

using test::some_bytes;

class StagedEndpointsTest : public StagedTest {
 protected:
  static constexpr size_t kBytes = 3 << 20;
  void SetUp() override {
    wire_name_ = "simulated_endpoints_gpu_to_gpu";
    StagedTest::SetUp();
    source_ = wire_->memory(0, kBytes);
    target_ = wire_->memory(1, kBytes);
    from_ = writer_->add_region(source_->bytes(), Access::kLocal).value();
    into_ = owner_->add_region(target_->bytes(), Access::kRemoteWrite).value();
    ASSERT_GT(owner_->traits().endpoints, 1u);
  }
  /// Whether a write of all bytes ends well; if so, the bytes are there.
  bool write(uint64_t context) {
    const auto bytes = some_bytes(kBytes, context);
    source_->put(bytes);
    post(from_, source_->bytes(), owner_->remote_range(into_), 0, context);
    EXPECT_TRUE(wait([&] { return ended_.contains(context); }));
    if (!ended_[context]) return false;
    EXPECT_TRUE(wait([&] { return immediates_[context] == 1; }));
    EXPECT_TRUE(target_->get() == bytes);
    return true;
  }

  std::unique_ptr<test::Memory> source_, target_;
  uint32_t from_ = 0, into_ = 0;
};

TEST_F(StagedEndpointsTest, ARingIsWrittenOverAllOfThem) {
  (void)owner_->connect(writer_->address()).value();
  EXPECT_EQ(writer_->ways(peer_), 1u) << "there is no ring yet";
  EXPECT_TRUE(write(1));
  EXPECT_EQ(writer_->ways(peer_), owner_->traits().endpoints);
}

/// Anybody may ask for a ring.
TEST_F(StagedEndpointsTest, ARingOfAStrangerTakesTheFirstAlone) {
  EXPECT_TRUE(write(1));
  EXPECT_EQ(writer_->ways(peer_), 1u);
}

/// The connections of a ring are new each time, and one that never works would fail each of them.
TEST_F(StagedEndpointsTest, AfterAPieceHasFailedTheNextRingTakesTheFirstAlone) {
  (void)owner_->connect(writer_->address()).value();
  EXPECT_TRUE(write(1));
  ASSERT_TRUE(wire_->break_further_endpoints(0, 0));
  EXPECT_FALSE(write(2));
  EXPECT_TRUE(write(3));
  EXPECT_EQ(writer_->ways(peer_), 1u);
}

TEST(StagedDoors, DoorsForHostMemoryLeaveTheRingsTheirPlaces) {
  const auto wire = kind_named("simulated_endpoints", test::host_wire_kinds()).make();
  const auto domain = staged::stage(wire->open(0), {.wide_max = 1}).value();
  const uint32_t first = domain->open_door().value(), second = domain->open_door().value();
  EXPECT_EQ(domain->further_door_addresses(first).size(), domain->traits().endpoints - 1);
  EXPECT_EQ(domain->further_door_addresses(second).size(), 0u);
  domain->close_door(first);
  const uint32_t third = domain->open_door().value();
  EXPECT_EQ(domain->further_door_addresses(third).size(), domain->traits().endpoints - 1);
}

}  // namespace
}  // namespace braid::fabric
