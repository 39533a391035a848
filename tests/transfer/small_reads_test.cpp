// Small reads over a wire that answers writes: a message brings the bytes.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "transfer/pattern.h"
#include "transfer/rail_net.h"

namespace braid::transfer::test {
namespace {

constexpr size_t kBytes = 64 << 10;

class SmallReadsTest : public testing::Test {
 protected:
  SmallReadsTest() {
    fill(theirs_, 1);
    fill(mine_, 2);
    net_.add_buffer(owner_, theirs_, kMayRead);
    net_.add_buffer(owner_, secret_, kNoRights);
  }

  Piece piece(uint64_t id, size_t size_bytes, size_t offset_bytes = 0) {
    return {id,
            Operation::kRead,
            buffer_,
            MutableBytes(mine_).subspan(offset_bytes, size_bytes),
            reinterpret_cast<uint64_t>(theirs_.data()) + offset_bytes,
            0};
  }
  Cause read(const Piece& piece) {
    me_.rail->post(link_, piece);
    EXPECT_TRUE(net_.run(100'000, [&] { return me_.ended.contains(piece.id); }));
    return me_.ended[piece.id];
  }
  /// A lane makes it memory of a GPU. The CPU cannot copy there.
  uint64_t add_memory_of_gpu(RailNet::Side& side) {
    Buffer buffer;
    buffer.memory = of_gpu_;
    buffer.rights = kMayRead;
    buffer.lane = std::shared_ptr<fabric::gpu::Lane>(
        std::make_shared<int>(), reinterpret_cast<fabric::gpu::Lane*>(of_gpu_.data()));
    const uint64_t id = side.owned.buffers.add(buffer).value();
    EXPECT_TRUE(side.rail->add_buffer(*side.owned.buffers.find(id)).ok());
    return id;
  }
  /// An answer of that size to a read of 10 bytes, whose question was lost.
  void expect_that_ends_the_link(size_t size_bytes) {
    net_.network().cut(*me_.domain, fabric::sim::Break::kSwallows);
    me_.rail->post(link_, piece(1, 10));
    net_.run(100);
    net_.network().mend(*me_.domain);
    owner_.rail->send(links_of_owner(), SmallReadAnswer{1, Cause::kNone},
                      std::vector<std::byte>(size_bytes));
    ASSERT_TRUE(net_.run(100'000, [&] { return !me_.lost.empty(); }));
    EXPECT_EQ(me_.ended[1], Cause::kPathFailed);
    EXPECT_EQ(wrong_at(mine_, 2), std::nullopt);
  }
  /// The peer has to give it back first. Ends what the test does with the buffer.
  bool is_lent(uint64_t buffer) {
    me_.rail->retire_buffer(buffer);
    return me_.rail->holds_buffer(buffer);
  }
  uint64_t links_of_owner() const { return owner_.up.front().link; }

  RailNet net_{true};
  RailNet::Side &owner_ = net_.add(), &me_ = net_.add();
  std::vector<std::byte> theirs_ = std::vector<std::byte>(kBytes), mine_ = theirs_,
                         secret_ = std::vector<std::byte>(64), of_gpu_ = theirs_;
  const uint64_t buffer_ = net_.add_buffer(me_, mine_, kNoRights);
  const uint64_t link_ = net_.connect(me_, owner_);
};

TEST_F(SmallReadsTest, BringTheBytesAndLendNothing) {
  for (const size_t size_bytes : {size_t{1}, size_t{100}, kSmallReadBytesMax}) {
    fill(mine_, 2);
    ASSERT_EQ(read(piece(size_bytes, size_bytes, 7)), Cause::kNone) << size_bytes;
    EXPECT_TRUE(
        std::equal(theirs_.begin() + 7, theirs_.begin() + 7 + size_bytes, mine_.begin() + 7));
    std::vector<std::byte> rest(kBytes);
    fill(rest, 2);
    EXPECT_TRUE(
        std::equal(rest.begin() + 7 + size_bytes, rest.end(), mine_.begin() + 7 + size_bytes));
    EXPECT_TRUE(std::equal(rest.begin(), rest.begin() + 7, mine_.begin()));
  }
  EXPECT_FALSE(is_lent(buffer_));
  EXPECT_EQ(me_.rail->statistics().front().read_bytes, 1 + 100 + kSmallReadBytesMax);
  EXPECT_EQ(owner_.rail->statistics().front().served_bytes, 1 + 100 + kSmallReadBytesMax);
}

TEST_F(SmallReadsTest, LargerOnesGoByALoan) {
  ASSERT_EQ(read(piece(1, kSmallReadBytesMax + 1)), Cause::kNone);
  EXPECT_EQ(wrong_at(MutableBytes(mine_).first(kSmallReadBytesMax + 1), 1), std::nullopt);
  EXPECT_TRUE(is_lent(buffer_));
}

TEST_F(SmallReadsTest, SeveralAtOnceGoByALoan) {
  for (uint64_t id = 1; id <= 2; ++id) me_.rail->post(link_, piece(id, 1000, 1000 * (id - 1)));
  ASSERT_TRUE(net_.run(100'000, [&] { return me_.ended.size() == 2; }));
  for (const auto& [id, cause] : me_.ended) EXPECT_EQ(cause, Cause::kNone) << id;
  EXPECT_EQ(wrong_at(MutableBytes(mine_).first(2000), 1), std::nullopt);
  EXPECT_TRUE(is_lent(buffer_));
}

TEST_F(SmallReadsTest, AreRefusedWithTheirCauses) {
  Piece outside = piece(1, 100), not_allowed = piece(2, 10);
  outside.address = reinterpret_cast<uint64_t>(theirs_.data()) + kBytes - 99;
  not_allowed.address = reinterpret_cast<uint64_t>(secret_.data());
  EXPECT_EQ(read(outside), Cause::kOutside);
  EXPECT_EQ(read(not_allowed), Cause::kNotAllowed);
  EXPECT_EQ(wrong_at(mine_, 2), std::nullopt);
}

TEST_F(SmallReadsTest, OfMemoryOfAGpuGoByALoan) {
  fill(of_gpu_, 1);
  add_memory_of_gpu(owner_);
  Piece from_gpu = piece(1, 64);
  from_gpu.address = reinterpret_cast<uint64_t>(of_gpu_.data());
  ASSERT_EQ(read(from_gpu), Cause::kNone);
  EXPECT_EQ(wrong_at(from_gpu.local, 1), std::nullopt);
  EXPECT_TRUE(is_lent(buffer_));
}

TEST_F(SmallReadsTest, IntoMemoryOfAGpuGoByALoan) {
  Piece to_gpu = piece(1, 64);
  to_gpu.buffer = add_memory_of_gpu(me_);
  to_gpu.local = MutableBytes(of_gpu_).first(64);
  ASSERT_EQ(read(to_gpu), Cause::kNone);
  EXPECT_EQ(wrong_at(to_gpu.local, 1), std::nullopt);
  EXPECT_TRUE(is_lent(to_gpu.buffer));
}

TEST_F(SmallReadsTest, EndWithTheirLinkAndLandNowhereLater) {
  net_.pause(owner_);
  me_.rail->post(link_, piece(1, 100));
  net_.run(100);
  EXPECT_TRUE(me_.ended.empty());
  me_.rail->close(link_);
  ASSERT_TRUE(net_.run(100, [&] { return !me_.ended.empty(); }));
  EXPECT_EQ(me_.ended[1], Cause::kPathFailed);
  net_.resume(owner_);
  net_.run(100'000);
  EXPECT_EQ(wrong_at(mine_, 2), std::nullopt);
}

TEST_F(SmallReadsTest, EndWithTheirLinkAlsoBeforeTheyAreAskedFor) {
  for (const uint64_t id : {1, 2}) me_.rail->post(link_, piece(id, 100));
  me_.rail->close(link_);
  ASSERT_TRUE(net_.run(100, [&] { return me_.ended.size() == 2; }));
  for (const auto& [id, cause] : me_.ended) EXPECT_EQ(cause, Cause::kPathFailed) << id;
}

TEST_F(SmallReadsTest, ALargerOneIsRefusedAndTheNextIsAnswered) {
  me_.rail->send(link_, SmallRead{99, reinterpret_cast<uint64_t>(theirs_.data()), 5000});
  net_.run(1'000);
  EXPECT_EQ(read(piece(1, 100)), Cause::kNone);
  EXPECT_TRUE(me_.lost.empty() && owner_.lost.empty());
}

TEST_F(SmallReadsTest, AnAnswerThatNobodyAskedForLandsNowhere) {
  owner_.rail->send(links_of_owner(), SmallReadAnswer{1, Cause::kNone}, std::vector<std::byte>(9));
  net_.run(1'000);
  EXPECT_EQ(wrong_at(mine_, 2), std::nullopt);
  EXPECT_EQ(read(piece(1, 9)), Cause::kNone);
}

TEST_F(SmallReadsTest, AShorterAnswerEndsTheLinkOfWhoeverSentIt) { expect_that_ends_the_link(9); }

TEST_F(SmallReadsTest, SoDoesALongerOne) { expect_that_ends_the_link(11); }

/// It speaks as an engine of the fabric, and reads no message: each that waits for it is kept.
TEST_F(SmallReadsTest, APeerThatTakesNoAnswersFillsNoMemoryWithThem) {
  constexpr uint64_t kAsked = 1000;
  const auto asker = net_.add_stranger();
  const auto address = fabric::decode_address(owner_.rail->address()).value();
  const uint64_t peer = asker->connect(address, net_.now_ns() + 100'000'000).value();
  const auto say = [&](const RailMessage& message) {
    EXPECT_TRUE(net_.run(10'000, [&] { return asker->send(peer, encode(message)).ok(); }));
  };
  say(Hello{{5, 5}, RailNet::kStranger, 1});
  ASSERT_TRUE(net_.run(10'000, [&] { return owner_.up.size() == 2; }));
  const auto at = reinterpret_cast<uint64_t>(theirs_.data());
  for (uint64_t id = 1; id <= kAsked; ++id) say(SmallRead{id, at, kSmallReadBytesMax});
  net_.run(10'000);
  uint64_t with_bytes = 0, others = 0;
  ASSERT_TRUE(net_.run(1'000'000, [&] {
    while (const auto received = asker->receive()) {
      const RailMessage message = decode_rail_message(received->payload).value();
      const auto* answer = std::get_if<SmallReadAnswer>(&message);
      if (answer == nullptr) continue;
      with_bytes += received->following.empty() ? 0 : 1;
      others += answer->cause == Cause::kOtherWay ? 1 : 0;
    }
    return with_bytes + others == kAsked;
  }));
  EXPECT_GE(with_bytes, 16u);
  EXPECT_LE(with_bytes, 400u);
  net_.stop();
}

}  // namespace
}  // namespace braid::transfer::test
