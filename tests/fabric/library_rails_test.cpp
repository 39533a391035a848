// A caller of include/braid/fabric.h says which rails carry a write.
#include <gtest/gtest.h>

#include <vector>

#include "fabric/fake_provider/use.h"
#include "fabric/library_pair.h"

namespace braid::test {
namespace {

using std::chrono::seconds;

class FabricRailsTest : public FabricPair {
 protected:
  void SetUp() override {
    fabric::test::use_fake_providers();  // for the tests after it: libfabric starts once
    FabricPair::SetUp();
  }
};

TEST_F(FabricRailsTest, AWriteUsesTheRailsThatItsCallerNames) {
  std::vector<std::byte> memory(100'000), source(memory.size(), std::byte{3});
  const auto target = open_memory(memory);
  const auto from = writer_->add_region(source.data(), source.size()).value();
  const auto immediate = owner_->acquire_immediate().value();
  const auto bytes_over = [&](size_t rail) {
    uint64_t bytes = 0;
    const auto routes = writer_->routes();
    for (const Fabric::Route& route : routes.value())
      if (route.rail == rail) bytes += route.bytes;
    return bytes;
  };
  const uint64_t before[] = {bytes_over(0), bytes_over(1)};
  const Fabric::Pages all{{0}, source.size(), 0};
  const auto group = writer_->add_group({{owners_peer_, target}}).value();
  const std::vector<Fabric::Part> parts{{{0, 0, source.size()}, immediate}};
  const Fabric::Rails second{1, 1};
  const Result<Fabric::Ticket> tickets[] = {
      writer_->write(from, target, {0, 0, source.size()}, immediate, seconds(60), second),
      writer_->write_pages(from, all, target, all, source.size(), immediate, seconds(60), second),
      writer_->scatter(from, group, parts, seconds(60), second)};
  for (const auto& ticket : tickets)
    EXPECT_EQ(writer_->wait(ticket.value(), seconds(60)).value(), Fabric::TicketState::kDone);
  const uint64_t expected = 2 * Fabric::immediates_of_write(source.size()) +
                            Fabric::immediates_of_pages(source.size(), 1);
  EXPECT_EQ(owner_->wait_count(immediate, expected, seconds(60)).value(), expected);
  EXPECT_EQ(memory, source);
  EXPECT_EQ(bytes_over(0), before[0]);
  EXPECT_EQ(bytes_over(1), before[1] + 3 * source.size());
  const auto wrong =
      writer_->write(from, target, {0, 0, 1}, {}, seconds(60), Fabric::Rails{1, 2}).status();
  EXPECT_EQ(wrong.code(), BRAID_ERROR_ARGUMENT);
  EXPECT_EQ(wrong.message(), "the write names 2 rails from number 1 on: this engine has 2");
}

}  // namespace
}  // namespace braid::test
