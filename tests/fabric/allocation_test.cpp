// Memory that an engine allocates: mapped by the writer with `local`, written by a rail otherwise.
#include <algorithm>

#include "fabric/library_pair.h"

namespace braid {
namespace {

using std::chrono::seconds;

class AllocationTest : public test::FabricPair, public testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override { open(GetParam()); }
};

TEST_P(AllocationTest, AllocatedMemoryIsGrantedWrittenAndFreed) {
  constexpr size_t kBytes = 2'000'003;
  std::vector<std::byte> source(kBytes, std::byte{7});
  const auto from = writer_->add_region(source.data(), kBytes).value();
  for (int turn = 0; turn < 2; ++turn) {
    const auto allocated = owner_->allocate_memory(kBytes).value();
    const auto* bytes = static_cast<const std::byte*>(allocated.memory);
    ASSERT_EQ(std::count(bytes, bytes + kBytes, std::byte{0}), ssize_t{kBytes});
    const auto granted = owner_->grant(allocated.region, writers_peer_, 0, kBytes).value();
    const auto target = writer_->open_target(granted.descriptor).value();
    const auto immediate = owner_->acquire_immediate().value();
    const auto ticket =
        writer_->write(from, target, {0, 0, kBytes}, immediate, seconds(60)).value();
    const uint64_t count = Fabric::immediates_of_write(kBytes);
    ASSERT_EQ(owner_->wait_count(immediate, count, seconds(60)).value(), count);
    EXPECT_TRUE(std::equal(bytes, bytes + kBytes, source.begin()));
    EXPECT_EQ(writer_->wait(ticket, seconds(60)).value(), Fabric::TicketState::kDone);
    EXPECT_FALSE(owner_->remove_region(allocated.region).ok()) << "it is granted";
    EXPECT_EQ(owner_->revoke(granted.grant, seconds(60)).value(), Fabric::Fence::kFenced);
    EXPECT_TRUE(owner_->remove_region(allocated.region).ok());
    EXPECT_FALSE(owner_->grant(allocated.region, writers_peer_, 0, 1).ok()) << "it is freed";
  }
  EXPECT_FALSE(owner_->allocate_memory(0).ok());
}

INSTANTIATE_TEST_SUITE_P(Providers, AllocationTest, testing::Values("tcp;ofi_rxm", "net", "local"),
                         [](const auto& provider) {
                           return std::string(provider.param).substr(0, 3);
                         });

}  // namespace
}  // namespace braid
