// Writes to a link that is fenced at both ends, over a network where nothing else ends them (shm).
#include <gtest/gtest.h>

#include "transfer/rail_net.h"

namespace braid::transfer::test {
namespace {

/// A write that has not landed, and that nobody takes any more, still reads its source.
class FencedWritesTest : public testing::TestWithParam<Operation> {
 protected:
  static constexpr size_t kBytes = 1 << 20;

  FencedWritesTest() {
    of_owner_ = net_.add_buffer(owner_, theirs_, kMayRead | kMayWrite);
    mine_is_ = net_.add_buffer(me_, mine_, kNoRights);
    link_ = net_.connect(me_, owner_);
  }
  void post(uint64_t id, size_t size_bytes) {
    me_.rail->post(link_, {id, GetParam(), mine_is_, std::span(mine_).first(size_bytes),
                           reinterpret_cast<uint64_t>(theirs_.data()), 0});
    (void)me_.rail->push();
  }
  /// As FabricBackend does: it closes its own end, then asks the owner over another link.
  void fence() {
    const uint64_t generation = me_.rail->generation(link_), peer = me_.rail->peer_of(link_);
    me_.rail->close(link_, true);
    ASSERT_TRUE(net_.run(1'000'000, [&] {
      return owner_.rail->fence_from(me_.rail->number(), generation, me_.who);
    }));
    me_.rail->fenced_by(peer);
  }
  void expect_free(RailNet::Side& side, uint64_t buffer) {
    side.owned.buffers.remove(buffer);
    side.rail->retire_buffer(buffer);
    EXPECT_TRUE(net_.run(1'000'000, [&] { return !side.rail->holds_buffer(buffer); }));
  }

  RailNet net_{false, false};
  RailNet::Side &owner_ = net_.add(), &me_ = net_.add();
  std::vector<std::byte> theirs_ = std::vector<std::byte>(kBytes), mine_ = theirs_;
  uint64_t of_owner_ = 0, mine_is_ = 0, link_ = 0;
};

TEST_P(FencedWritesTest, LetGoOfTheMemoryThatTheyRead) {
  RailNet::Side& target = GetParam() == Operation::kRead ? me_ : owner_;
  post(1, kBytes);  // grants, or lends
  ASSERT_TRUE(net_.run(100'000, [&] { return me_.ended.size() == 1; }));
  post(2, kBytes);
  target.is_paused = true;  // it polls no more
  net_.run(1'000);
  net_.network().cut(*target.domain, fabric::sim::Break::kSilent);
  target.is_paused = false;
  net_.run(100);
  net_.network().mend(*target.domain);
  net_.run(1'000);
  ASSERT_EQ(me_.ended.size(), 1u) << "it has landed";
  fence();
  expect_free(owner_, of_owner_);
  expect_free(me_, mine_is_);
}

INSTANTIATE_TEST_SUITE_P(Operations, FencedWritesTest,
                         testing::Values(Operation::kRead, Operation::kWrite),
                         [](const auto& operation) {
                           return std::string(operation.param == Operation::kRead ? "Read"
                                                                                  : "Write");
                         });

}  // namespace
}  // namespace braid::transfer::test
