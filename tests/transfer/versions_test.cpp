// Owners whose rails speak another version than this side's, although both understood each other
// when the segment was opened: one protocol among several has changed. Each request that has no
// other rail ends so, and no other request does.
#include <gtest/gtest.h>

#include <filesystem>

#include "fabric/staged/domain.h"
#include "transfer/engine.h"
#include "transfer/failure.h"
#include "transfer/pattern.h"
#include "transfer/rail_net.h"

namespace braid::transfer::test {
namespace {

using Side = RailNet::Side;

constexpr size_t kBytes = 64 << 10;
constexpr uint64_t kGpuAddress = 1 << 20;
/// Long before requests without a way that works are given up.
constexpr double kSoonUs = 500'000;

class TransferVersions : public testing::Test {
 protected:
  TransferVersions() : owner(net.add()), memory(2 * kBytes), theirs(kBytes) {
    fill(theirs, 1);
    net.add_buffer(owner, theirs, kMayRead);
    description.incarnation = owner.who;
    description.places = {{{}, 1}, {{true, 0, -1, 0}, 2}};
    description.ranges = {
        {kGpuAddress, kBytes, kMayRead, 1},
        {reinterpret_cast<uint64_t>(theirs.data()), kBytes, kMayRead, 0},
    };
  }
  ~TransferVersions() override { net.stop(); }

  /// An engine of this version with these rails; "+gpu": a rail that stages memory of GPUs.
  void open(const std::vector<std::string>& providers) {
    auto owned = std::make_unique<Owned>();
    owned->jobs = std::make_unique<JobsAtOnce>();
    EngineOptions options;
    options.incarnation = {9, 9};
    std::vector<std::unique_ptr<Rail>> rails;
    std::vector<RailDescription> descriptions;
    const int host = net.add_host();
    for (const std::string& provider : providers) {
      rails.push_back(open_rail(host, options.incarnation, provider, *owned));
      descriptions.push_back({provider, "here", 1, {}, {}});
    }
    engine = std::make_unique<Engine>(std::move(owned), std::move(rails), std::move(descriptions),
                                      options);
    net.also([this](uint64_t now_ns) { engine->step(now_ns); });
    ASSERT_TRUE(engine->add_buffer(memory, kNoRights).ok());
  }
  std::unique_ptr<Rail> open_rail(int host, const Incarnation& who, const std::string& provider,
                                  Owned& owned) {
    std::unique_ptr<fabric::Domain> domain = net.open_domain(host);
    if (provider.ends_with("+gpu")) domain = fabric::staged::stage(std::move(domain)).value();
    return Rail::open(std::move(domain), who, {}, nullptr, owned).value();
  }
  /// The address of a staging rail that speaks later versions alone.
  std::vector<std::byte> address_of_later_staging() {
    const auto rail = open_rail(owner.host, owner.who, "sim+gpu", owner.owned);
    fabric::Address address = fabric::decode_address(rail->address()).value();
    std::vector<std::byte>& name = address.rails.front().name;
    constexpr size_t kVersionAt = 6;  // src/fabric/staged/records.cpp
    name[kVersionAt] = std::byte{200};
    return fabric::encode(address);
  }
  std::vector<std::byte> address_of_later_fabric() const {
    fabric::Address address = fabric::decode_address(owner.rail->address()).value();
    address.version = 200;
    return fabric::encode(address);
  }
  uint64_t submit(uint64_t segment, const std::vector<uint64_t>& addresses) {
    std::vector<Request> reads;
    for (size_t i = 0; i < addresses.size(); ++i)
      reads.push_back(
          {segment, Operation::kRead, memory.data() + i * kBytes, addresses[i], kBytes});
    return engine->submit(reads, std::nullopt).value();
  }
  uint64_t host_address() const { return reinterpret_cast<uint64_t>(theirs.data()); }
  bool ends_soon(uint64_t batch) {
    return net.run(kSoonUs, [&] { return engine->status(batch).value().has_ended(); });
  }
  Cause cause(uint64_t batch, size_t request) {
    return engine->outcomes(batch).value()[request].cause;
  }

  RailNet net;
  Side& owner;
  std::vector<std::byte> memory, theirs;
  Description description;
  std::unique_ptr<Engine> engine;
};

/// An owner of another version stages memory of GPUs in another way.
TEST_F(TransferVersions, ARequestThatNeedsARailOfAnotherVersionSaysSoAndNoOtherFails) {
  open({"sim", "sim+gpu"});
  description.rails = {{"sim", "there", 1, {}, owner.rail->address()},
                       {"sim+gpu", "there", 1, {}, address_of_later_staging()}};
  const uint64_t segment = engine->open_segment(description).value();
  const uint64_t batch = submit(segment, {host_address(), kGpuAddress});
  ASSERT_TRUE(ends_soon(batch));
  EXPECT_EQ(cause(batch, 0), Cause::kNone);
  EXPECT_EQ(wrong_at(std::span(memory).first(kBytes), 1), std::nullopt);
  EXPECT_EQ(cause(batch, 1), Cause::kOtherVersion);
  EXPECT_EQ(engine->wrong_with(segment), Cause::kNone) << "one rail of it works";
  EXPECT_EQ(engine->ways_up(segment), (std::pair<size_t, size_t>{1, 1}));

  const uint64_t later = submit(segment, {kGpuAddress, host_address()});
  EXPECT_TRUE(engine->outcomes(later).value()[0].has_ended) << "it is known by now";
  EXPECT_EQ(cause(later, 0), Cause::kOtherVersion);
  ASSERT_TRUE(ends_soon(later));
  EXPECT_EQ(cause(later, 1), Cause::kNone);
  EXPECT_EQ(wrong_at(std::span(memory).subspan(kBytes), 1), std::nullopt);
  const auto explained =
      engine->explain(Request{segment, Operation::kRead, memory.data(), kGpuAddress, kBytes});
  EXPECT_EQ(cause_of(explained.status()), Cause::kOtherVersion);
}

TEST_F(TransferVersions, ARailWhoseAddressIsOfAnotherVersionIsLeftOut) {
  open({"sim", "sim"});
  description.places.front().rails = 3;
  description.rails = {{"sim", "there", 1, {}, address_of_later_fabric()},
                       {"sim", "there", 1, {}, owner.rail->address()}};
  const uint64_t segment = engine->open_segment(description).value();
  const uint64_t batch = submit(segment, {host_address()});
  ASSERT_TRUE(ends_soon(batch));
  EXPECT_EQ(cause(batch, 0), Cause::kNone);
  EXPECT_EQ(wrong_at(std::span(memory).first(kBytes), 1), std::nullopt);
}

TEST_F(TransferVersions, ASegmentWhoseRailsAreAllOfAnotherVersionIsNotOpened) {
  open({"sim"});
  description.rails = {{"sim", "there", 1, {}, address_of_later_fabric()}};
  const auto opened = engine->open_segment(description);
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(cause_of(opened.status()), Cause::kOtherVersion) << opened.status().message();
}

TEST_F(TransferVersions, ASegmentWhoseRailsTurnOutToBeOfAnotherVersionIsSeenToBe) {
  open({"sim+gpu"});
  description.rails = {{"sim+gpu", "there", 1, {}, address_of_later_staging()}};
  const uint64_t segment = engine->open_segment(description).value();
  ASSERT_TRUE(net.run(kSoonUs, [&] { return engine->wrong_with(segment) != Cause::kNone; }));
  EXPECT_EQ(engine->wrong_with(segment), Cause::kOtherVersion);
}

/// It speaks this side's fabric, and a later version of what transfers say over it.
TEST_F(TransferVersions, ARailThatAnswersInAnotherVersionIsOne) {
  const auto later = net.add_stranger();
  Hello hello{owner.who, RailNet::kStranger, 1};
  hello.version_oldest = kVersionNewest + 1;
  hello.version = kVersionNewest + 2;
  net.also([&](uint64_t) {
    while (const auto peer = later->accept()) EXPECT_TRUE(later->send(*peer, encode(hello)).ok());
  });
  open({"sim"});
  description.rails = {{"sim", "there", 1, {}, fabric::encode(later->address())}};
  const uint64_t segment = engine->open_segment(description).value();
  const uint64_t batch = submit(segment, {host_address()});
  ASSERT_TRUE(ends_soon(batch));
  EXPECT_EQ(cause(batch, 0), Cause::kOtherVersion);
  EXPECT_EQ(engine->fabric_statistics().dials, 1u) << "to dial again is of no use";
  net.stop();
}

/// A process of that version, which writes a file of an owner whose storage is full.
class Writer {
 public:
  Writer(RailNet& net, uint16_t version) : net_(net) {
    owner_.owned.jobs = std::make_unique<JobsAtOnce>(Cause::kNoSpace);
    EXPECT_TRUE(owner_.owned.exports.add("out", testing::TempDir(), kMayWrite).ok());
    const uint64_t number = 100u + version;
    engine_ = net.add_stranger(number);
    const fabric::Address there = fabric::decode_address(owner_.rail->address()).value();
    peer_ = engine_->connect(there, net.now_ns() + 100'000'000).value();
    Hello hello{{8, 8}, number, 1};
    hello.version = version;
    (void)ask<Hello>(hello);
  }
  /// What the owner says of a write.
  Cause refusal() {
    const std::string name = "braid-versions-" + std::to_string(getpid());
    const auto opened = ask<FileOpened>(FileOpen{1, kMayWrite, "out/" + name});
    EXPECT_EQ(opened.cause, Cause::kNone);
    EXPECT_EQ(ask<StageAnswer>(StageRequest{}).cause, Cause::kNone);
    std::filesystem::remove(testing::TempDir() + "/" + name);
    return ask<FileWritten>(FileWrite{2, opened.file, 0, 4096, 0}).cause;
  }

 private:
  template <typename Answer>
  Answer ask(const RailMessage& question) {
    const auto is_sent = [&] { return engine_->send(peer_, encode(question)).ok(); };
    EXPECT_TRUE(net_.run(1'000'000, is_sent));
    std::optional<Answer> answer;
    EXPECT_TRUE(net_.run(1'000'000, [&] {
      const auto received = engine_->receive();
      if (!received) return false;
      const auto message = decode_rail_message(received->payload).value();
      if (const auto* found = std::get_if<Answer>(&message)) answer = *found;
      return answer.has_value();
    }));
    return answer.value_or(Answer());
  }

  RailNet& net_;
  Side& owner_ = net_.add();
  std::unique_ptr<fabric::Engine> engine_;
  uint64_t peer_ = 0;
};

/// An older one would take the message for broken, and lose the link.
TEST(TransferStorageCauses, AreToldInWordsThatThePeerKnows) {
  RailNet net;
  Writer old(net, 2), present(net, 3);
  EXPECT_EQ(old.refusal(), Cause::kFileError);
  EXPECT_EQ(present.refusal(), Cause::kNoSpace);
  net.stop();
}

}  // namespace
}  // namespace braid::transfer::test
