// A caller of include/braid/fabric.h says which rails carry a write.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "fabric/fake_provider/use.h"
#include "fabric/library_pair.h"
#include "support/set_variable.h"

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

/// The bytes of many writes that are under way at once, over rails of several endpoints.
class FabricEndpointsTest : public FabricRailsTest {
 protected:
  const SetVariable asked_{"BRAID_FABRIC_ENDPOINTS", "3"};
};

TEST_F(FabricEndpointsTest, CarryLargeAndSmallWrites) {
  const auto report = owner_->report(Fabric::Form::kJson).value();
  EXPECT_NE(report.find(R"("endpoints":3)"), std::string::npos) << report;
  for (Fabric* fabric : {&*owner_, &*writer_}) {
    const std::string json = fabric->report(Fabric::Form::kJson).value();
    const std::string routes = json.substr(json.find(R"("routes")"));
    EXPECT_NE(routes.find(R"("endpoints":3)"), std::string::npos) << routes;
    EXPECT_EQ(routes.find(R"("endpoints":1)"), std::string::npos) << routes;
  }
  std::vector<std::byte> memory(8 << 20), source(memory.size());
  std::mt19937_64 random(7);
  for (std::byte& byte : source) byte = static_cast<std::byte>(random());
  const auto target = open_memory(memory);
  const auto from = writer_->add_region(source.data(), source.size()).value();
  const auto immediate = owner_->acquire_immediate().value();
  std::vector<Fabric::Ticket> tickets;
  uint64_t expected = 0;
  uint64_t size = 64;
  for (uint64_t offset = 0; offset < source.size();) {
    const uint64_t bytes = std::min<uint64_t>(size, source.size() - offset);
    tickets.push_back(
        writer_->write(from, target, {offset, offset, bytes}, immediate, seconds(60)).value());
    expected += Fabric::immediates_of_write(bytes);
    offset += bytes;
    size = size > 300'000 ? 64 : 3 * size;
  }
  for (const Fabric::Ticket ticket : tickets)
    EXPECT_EQ(writer_->wait(ticket, seconds(60)).value(), Fabric::TicketState::kDone);
  EXPECT_EQ(owner_->wait_count(immediate, expected, seconds(60)).value(), expected);
  EXPECT_EQ(memory, source);
}

TEST(FabricEndpoints, ARailForMemoryOfGpusHasSeveralToo) {
  fabric::test::use_fake_providers();
  const SetVariable asked("BRAID_FABRIC_ENDPOINTS", "3");
  Fabric::Options options{"tcp;ofi_rxm", {"127.0.0.1"}};
  options.gpu_memory = true;
  const auto report = Fabric::open(options).value().report(Fabric::Form::kJson).value();
  EXPECT_NE(report.find(R"("endpoints":3)"), std::string::npos) << report;
}

TEST(FabricEndpoints, ANumberThatIsNoneIsAnErrorThatNamesIt) {
  fabric::test::use_fake_providers();
  const SetVariable asked("BRAID_FABRIC_ENDPOINTS", "many");
  const auto opened = Fabric::open({"tcp;ofi_rxm", {"127.0.0.1"}});
  ASSERT_FALSE(opened.ok());
  EXPECT_NE(opened.status().message().find("BRAID_FABRIC_ENDPOINTS='many'"), std::string::npos)
      << opened.status().message();
}

}  // namespace
}  // namespace braid::test
