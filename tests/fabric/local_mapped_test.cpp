// Host memory that peers map: what a step of theirs copies, and what goes through the queue
// instead.
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <string>

#include "base/clock.h"
#include "fabric/engine.h"
#include "fabric/local/domain.h"
#include "fabric/local/limits.h"
#include "fabric/shared_bytes.h"
#include "fabric/wires.h"
#include "support/eventually.h"
#include "support/no_more_files.h"

namespace braid::fabric {
namespace {

class LocalMappedTest : public testing::Test {
 protected:
  struct Memory {
    std::unique_ptr<test::Memory> memory;
    uint32_t region = 0;
    RemoteRange range;
  };
  Memory add(size_t size_bytes) {
    Memory added;
    added.memory = std::make_unique<test::SharedHostBytes>(size_bytes);
    added.region = owner_->add_region(added.memory->bytes(), Access::kRemoteWrite).value();
    added.range = owner_->remote_range(added.region);
    return added;
  }
  void post(const RemoteRange& range, uint64_t offset, Bytes source,
            std::optional<uint32_t> immediate = {}) {
    Write write;
    write.peer = peer_;
    write.region =
        writer_->add_region({const_cast<std::byte*>(source.data()), source.size()}, Access::kLocal)
            .value();
    write.source = source;
    write.target_address = range.base + offset;
    write.target_key = range.key;
    write.immediate = immediate;
    ended_.reset();
    ASSERT_TRUE(writer_->post_write(write));
  }
  void look_at_writer() {
    Completion completion;
    if (writer_->poll({&completion, 1}) > 0) ended_ = completion.ok;
  }
  bool wait(const std::function<bool()>& until) {
    for (test::Patience patience(20'000); !until() && !patience.is_over();) {
      look_at_writer();
      Completion completion;
      (void)owner_->poll({&completion, 1});
    }
    return until();
  }
  bool writes_well(const RemoteRange& range, uint64_t offset, Bytes source) {
    post(range, offset, source);
    return wait([&] { return ended_.has_value(); }) && *ended_;
  }

  std::unique_ptr<Domain> writer_ = local::open_domain().value();
  std::unique_ptr<Domain> owner_ = local::open_domain().value();
  uint32_t peer_ = writer_->connect(owner_->address()).value();
  std::optional<bool> ended_;
};

TEST_F(LocalMappedTest, WhoSleepsIsWokenByAWriteAndByNothingElse) {
  const auto target = add(4096);
  const std::vector<std::byte> source(100, std::byte{9});
  ASSERT_TRUE(writes_well(target.range, 0, source)) << "it is mapped now";
  const auto is_woken = [&](int limit_ms) {
    pollfd awaited{owner_->wait_descriptor(), POLLIN, 0};
    return ::poll(&awaited, 1, limit_ms) == 1;
  };
  for (int turn = 0; turn < 3; ++turn) {
    ASSERT_TRUE(wait([&] { return owner_->arm(); }));
    EXPECT_FALSE(is_woken(20));
    post(target.range, 0, source, 3);
    look_at_writer();
    ASSERT_TRUE(is_woken(20'000)) << turn;
    Completion completion;
    ASSERT_EQ(owner_->poll({&completion, 1}), 1u);
    EXPECT_EQ(completion.immediate, 3u);
  }
}

/// An engine's step ends with messages, after it has polled.
TEST_F(LocalMappedTest, WhatIsSaidBeforeTheSenderSleepsWakesWhoSleeps) {
  std::vector<std::byte> buffer(100), message(100, std::byte{9});
  const uint32_t into = owner_->add_region(buffer, Access::kLocal).value();
  const uint32_t from = writer_->add_region(message, Access::kLocal).value();
  ASSERT_TRUE(owner_->post_receive(into, buffer, 1));
  const auto target = add(4096);
  ASSERT_TRUE(writes_well(target.range, 0, message)) << "they are connected now";
  ASSERT_TRUE(wait([&] { return writer_->arm() && owner_->arm(); }));
  look_at_writer();
  ASSERT_TRUE(writer_->post_send(peer_, from, message, 2));
  (void)writer_->arm();
  pollfd awaited{owner_->wait_descriptor(), POLLIN, 0};
  ASSERT_EQ(::poll(&awaited, 1, 20'000), 1);
  Completion completion;
  ASSERT_EQ(owner_->poll({&completion, 1}), 1u);
  EXPECT_EQ(buffer, message);
}

/// Its heartbeats do not wait for the rest.
TEST_F(LocalMappedTest, AStepCopiesLittleOfALargeWrite) {
  const size_t size_bytes = 16 * local::kPageBytesAtOnce;
  const auto target = add(size_bytes);
  const std::vector<std::byte> source(size_bytes, std::byte{7});
  ASSERT_TRUE(writes_well(target.range, 0, Bytes(source).first(1))) << "it is mapped now";
  post(target.range, 0, source);
  const auto copied = [&] {
    const MutableBytes all = target.memory->bytes();
    return static_cast<uint64_t>(std::count(all.begin(), all.end(), std::byte{7}));
  };
  for (uint64_t step = 1; step <= 16; ++step) {
    EXPECT_FALSE(ended_.has_value());
    look_at_writer();
    EXPECT_EQ(copied(), step * local::kPageBytesAtOnce);
  }
  EXPECT_EQ(ended_, true) << "the owner need not look";
}

/// The board, on which the owner lists what a peer has mapped, has so many slots.
TEST_F(LocalMappedTest, WhatFindsNoPlaceOnTheBoardIsWrittenThroughTheQueue) {
  constexpr size_t kEach = 64;
  const auto target = add((local::kSlots + 3) * kEach);
  const auto source = test::some_bytes(kEach, 3);
  const MutableBytes all = target.memory->bytes();
  for (size_t i = 0; i < local::kSlots + 3; ++i) {
    const MutableBytes part = all.subspan(i * kEach, kEach);
    const uint32_t region = owner_->add_region(part, Access::kRemoteWrite).value();
    ASSERT_TRUE(writes_well(owner_->remote_range(region), 0, source)) << i;
    ASSERT_TRUE(std::equal(part.begin(), part.end(), source.begin())) << i;
  }
}

size_t mappings_of_shared_memory() {
  size_t count = 0;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    count += line.find("memfd:braid-fabric") != std::string::npos ? 1 : 0;
  return count;
}

TEST_F(LocalMappedTest, WhatCannotBeMappedIsAskedForOnceAndHeldUntilItIsRemoved) {
  const auto mapped = add(4096), target = add(4096);
  const auto source = test::some_bytes(4096, 3);
  ASSERT_TRUE(writes_well(mapped.range, 0, source)) << "they are connected now";
  const size_t before = mappings_of_shared_memory();
  {
    const braid::test::NoMoreFiles limit;
    ASSERT_TRUE(writes_well(target.range, 0, source));
  }
  for (int turn = 0; turn < 3; ++turn) {
    target.memory->put(std::vector<std::byte>(4096));
    ASSERT_TRUE(writes_well(target.range, 0, source));
    EXPECT_EQ(target.memory->get(), source);
  }
  EXPECT_EQ(mappings_of_shared_memory(), before) << "each write asks for it";
  owner_->remove_region(target.region);
  EXPECT_TRUE(wait([&] { return owner_->drain(target.region) == Drain::kOver; }));
  EXPECT_FALSE(writes_well(target.range, 0, source));
}

/// Of an allocation, only the part.
TEST_F(LocalMappedTest, APartThatBeginsWithinAPageIsWrittenThereAlone) {
  constexpr size_t kFirst = 5000, kBytes = 9001;
  const auto target = add(32'768);
  const uint32_t part =
      owner_->add_region(target.memory->bytes().subspan(kFirst, kBytes), Access::kRemoteWrite)
          .value();
  const RemoteRange range = owner_->remote_range(part);
  const auto source = test::some_bytes(kBytes, 4);
  ASSERT_TRUE(writes_well(range, 0, source));
  std::vector<std::byte> expected(32'768);
  std::copy(source.begin(), source.end(), expected.begin() + kFirst);
  EXPECT_EQ(target.memory->get(), expected);
  EXPECT_FALSE(writes_well(range, 1, source)) << "it reaches beyond what was granted";
  EXPECT_EQ(target.memory->get(), expected);
}

std::unique_ptr<Engine> open_engine(uint64_t number) {
  std::vector<std::unique_ptr<Domain>> rails;
  rails.push_back(local::open_domain().value());
  EngineOptions options;
  options.engine = number;
  return Engine::open(std::move(rails), options).value();
}

/// Who drives an engine sleeps after steps that were not busy.
TEST(LocalMappedEngineTest, AStepThatOnlyCopiesIsBusy) {
  const size_t size_bytes = 64 * local::kPageBytesAtOnce;
  test::SharedHostBytes memory(size_bytes);
  std::vector<std::byte> source(size_bytes, std::byte{7});
  const auto owner = open_engine(1), writer = open_engine(2);
  const auto wait = [&](const std::function<bool()>& until) {
    return braid::test::eventually([&] {
      owner->step(monotonic_ns());
      writer->step(monotonic_ns());
      return until();
    });
  };
  const uint64_t limit_ns = monotonic_after_ns(60'000'000);
  const uint64_t there = writer->connect(owner->address(), limit_ns).value();
  ASSERT_TRUE(wait([&] { return writer->peer_state(there).value() == PeerState::kConnected; }));
  std::optional<uint64_t> peer;
  ASSERT_TRUE(wait([&] { return (peer = owner->accept()).has_value(); }));
  const uint64_t region = owner->add_region(memory.bytes()).value();
  const auto granted = owner->grant(region, *peer, 0, size_bytes).value();
  const uint64_t target = writer->open_target(granted.descriptor).value();
  const uint64_t from = writer->add_region(source).value();
  const auto is_done = [&](uint64_t ticket) {
    return writer->state(ticket).value() == TicketState::kDone;
  };
  const uint64_t first = writer->write(from, target, {0, 0, 1}, {}, limit_ns).value();
  ASSERT_TRUE(wait([&] { return is_done(first); })) << "it is mapped now";
  const uint64_t all = writer->write(from, target, {0, 0, size_bytes}, {}, limit_ns).value();
  int steps = 0;
  for (; !is_done(all); ++steps) ASSERT_TRUE(writer->step(monotonic_ns())) << steps;
  EXPECT_GE(steps, 64);
  EXPECT_EQ(memory.get(), source);
}

}  // namespace
}  // namespace braid::fabric
