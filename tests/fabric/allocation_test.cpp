// Memory that an engine allocates: mapped by the writer with `local`, written by a rail otherwise.
#include <sys/resource.h>

#include <algorithm>

#include "fabric/library_pair.h"

namespace braid {
namespace {

using std::chrono::seconds;

class AllocationTest : public test::FabricPair, public testing::WithParamInterface<const char*> {
 protected:
  static constexpr size_t kBytes = 2'000'003;

  void SetUp() override { open(GetParam()); }
  void write_and_free();
};
class LocalAllocationTest : public AllocationTest {};

void AllocationTest::write_and_free() {
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
}

TEST_P(AllocationTest, AllocatedMemoryIsGrantedWrittenAndFreed) {
  write_and_free();
  EXPECT_FALSE(owner_->allocate_memory(0).ok());
  const std::string report = owner_->report(Fabric::Form::kJson).value();
  EXPECT_NE(report.find("\"unshared_allocations\":0"), std::string::npos) << report;
  EXPECT_NE(report.find("\"unshared_why\":null"), std::string::npos) << report;
}

/// Memory that is shared is a file, and files may not be so large.
TEST_P(LocalAllocationTest, MemoryThatCannotBeSharedIsWrittenAllTheSameAndTheReportSaysWhy) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  limit.rlim_cur = kBytes / 2;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  write_and_free();
  const std::string report = owner_->report(Fabric::Form::kJson).value();
  EXPECT_NE(report.find("\"unshared_allocations\":2"), std::string::npos) << report;
  EXPECT_NE(report.find("\"unshared_why\":\"files may not be as large (ulimit -f)\""),
            std::string::npos)
      << report;
  const std::string text = owner_->report(Fabric::Form::kText).value();
  EXPECT_NE(text.find("peers cannot map what was allocated last: files may not be as large"),
            std::string::npos)
      << text;
}

INSTANTIATE_TEST_SUITE_P(Providers, LocalAllocationTest, testing::Values("local"),
                         [](const auto&) { return "local"; });

INSTANTIATE_TEST_SUITE_P(Providers, AllocationTest, testing::Values("tcp;ofi_rxm", "net", "local"),
                         [](const auto& provider) {
                           return std::string(provider.param).substr(0, 3);
                         });

}  // namespace
}  // namespace braid
