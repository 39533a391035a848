// Memory that its owner allocated and this process maps: every byte goes by it, rights and borders
// hold, and an owner that takes it back, stands still or is killed harms nobody.
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "transfer/owner.h"

namespace braid::transfer::test {
namespace {

using Cause = Transfer::Cause;
constexpr size_t kBytes = 4 << 20;
constexpr const char* kMapped = "mapped memory";

struct Moved {
  uint64_t mapped = 0, by_rails = 0;
};

/// Bytes of slices, by what has carried them.
Moved moved_by(Transfer& transfer) {
  const std::string report = transfer.report(Transfer::Form::kJson).value();
  constexpr std::string_view kWay = "\"way\":\"", kDelivered = "\"delivered_bytes\":";
  Moved moved;
  for (size_t at = report.find(kWay); at != std::string::npos; at = report.find(kWay, at + 1)) {
    const bool is_mapped = report.compare(at + kWay.size(), strlen(kMapped), kMapped) == 0;
    const size_t number = report.find(kDelivered, at) + kDelivered.size();
    (is_mapped ? moved.mapped : moved.by_rails) += std::stoull(report.substr(number));
  }
  return moved;
}

/// Of peers' memory, in this process.
size_t mapping_count() {
  std::ifstream maps("/proc/self/maps");
  size_t count = 0;
  for (std::string line; std::getline(maps, line);)
    count += line.find("memfd:braid-transfer") != std::string::npos ? 1 : 0;
  return count;
}

size_t descriptor_count() {
  const auto all = std::filesystem::directory_iterator("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

TEST(TransferMapped, EveryByteGoesByItAndNothingByTheRails) {
  Owner owner;
  Initiator me(owner);
  fill(me.memory, 1);
  const auto both = owner.addresses[Owner::kBoth], readable = owner.addresses[Owner::kRead];
  EXPECT_EQ(me.run({me.write(both, kBytes)}), std::vector{Cause::kDone});
  EXPECT_EQ(owner.check(Owner::kBoth, 1, 0, kBytes), "right");
  owner.fill(Owner::kRead, 2);
  EXPECT_EQ(me.run({me.read(readable, kBytes)}), std::vector{Cause::kDone});
  EXPECT_EQ(wrong_at(me.memory, 2), std::nullopt);
  const Moved moved = moved_by(me.transfer);
  EXPECT_EQ(moved.mapped, 2 * kBytes);
  EXPECT_EQ(moved.by_rails, 0u);
  const std::string why =
      me.transfer.explain(me.read(readable, kBytes), Transfer::Form::kText).value();
  EXPECT_NE(why.find(kMapped), std::string::npos) << why;
  EXPECT_NE(why.find("stands by for a better transport"), std::string::npos) << why;
  // What may not be read cannot be mapped either.
  fill(me.memory, 3);
  EXPECT_EQ(me.run({me.write(owner.addresses[Owner::kWrite], kBytes)}), std::vector{Cause::kDone});
  EXPECT_EQ(owner.check(Owner::kWrite, 3, 0, kBytes), "right");
  EXPECT_EQ(moved_by(me.transfer).by_rails, kBytes);
}

TEST(TransferMapped, RightsAndBordersFailEachAlone) {
  Owner owner;
  Initiator me(owner);
  const auto both = owner.addresses[Owner::kBoth], readable = owner.addresses[Owner::kRead];
  owner.fill(Owner::kRead, 4);
  owner.fill(Owner::kBoth, 5);
  fill(me.memory, 6);
  EXPECT_EQ(me.run({me.write(readable, 64), me.read(both + kBytes - 63, 64),
                    me.write(both + kBytes - 63, 64), me.write(both + kBytes - 64, 64),
                    me.read(readable + kBytes - 64, 64, 4096)}),
            (std::vector{Cause::kNotAllowed, Cause::kOutside, Cause::kOutside, Cause::kDone,
                         Cause::kDone}));
  EXPECT_EQ(owner.check(Owner::kRead, 4, 0, kBytes), "right");
  EXPECT_EQ(owner.check(Owner::kBoth, 5, 0, kBytes - 64), "right");
  EXPECT_EQ(wrong_at(std::span(me.memory).subspan(4096, 64), 4, kBytes - 64), std::nullopt);
  EXPECT_EQ(moved_by(me.transfer).by_rails, 0u);
}

TEST(TransferMapped, AnOwnerThatStandsStillIsReadAllTheSame) {
  Owner owner;
  Initiator me(owner);
  owner.fill(Owner::kRead, 7);
  owner.stop();
  EXPECT_EQ(me.run({me.read(owner.addresses[Owner::kRead], kBytes)}), std::vector{Cause::kDone});
  owner.signal(SIGCONT);
  EXPECT_EQ(wrong_at(me.memory, 7), std::nullopt);
}

/// Reads and writes go on in other threads meanwhile.
class Load {
 public:
  Load(Initiator& me, const Owner& owner) {
    const auto there = owner.addresses[Owner::kBoth];
    for (const auto operation : {Transfer::Operation::kRead, Transfer::Operation::kWrite})
      threads_.emplace_back([this, &me, there, operation] {
        const size_t place = operation == Transfer::Operation::kRead ? kBytes : 0;
        const std::vector<Transfer::Request> all(4, me.request(operation, there, kBytes, place));
        while (!is_over_)
          for (const Cause cause : me.run(all)) count(cause);
      });
  }
  ~Load() { end(); }
  void end() {
    is_over_ = true;
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  std::atomic<size_t> done = 0, outside = 0, lost = 0, others = 0;

 private:
  void count(Cause cause) {
    ++(cause == Cause::kDone       ? done
       : cause == Cause::kOutside  ? outside
       : cause == Cause::kPeerLost ? lost
                                   : others);
  }
  std::atomic<bool> is_over_ = false;
  std::vector<std::thread> threads_;
};

TEST(TransferMapped, AnOwnerTakesItBackUnderLoadAndItsNewMemoryStaysAsItIs) {
  Owner owner;
  Initiator me(owner, {}, 2 * kBytes);
  Load load(me, owner);
  EXPECT_TRUE(eventually([&] { return load.done > 20; }));
  EXPECT_EQ(owner.ask("replace 2 77"), "replaced");
  EXPECT_TRUE(eventually([&] { return load.outside > 20; }));
  load.end();
  EXPECT_EQ(owner.check(Owner::kBoth, 77, 0, kBytes), "right");
  EXPECT_EQ(load.lost + load.others, 0u);
  // Its pages are nobody's once this process has let go of them.
  EXPECT_TRUE(eventually([] { return mapping_count() == 3; })) << mapping_count();
}

TEST(TransferMapped, AnOwnerThatIsKilledUnderLoadIsLost) {
  auto owner = std::make_unique<Owner>();
  Owner other;
  Initiator me(*owner, {}, 2 * kBytes);
  const auto others = me.transfer.open_segment(other.name, Initiator::kLimit).value();
  Load load(me, *owner);
  EXPECT_TRUE(eventually([&] { return load.done > 20; }));
  owner->end(SIGKILL);
  EXPECT_TRUE(eventually([&] { return load.lost > 20; }));
  load.end();
  EXPECT_EQ(load.outside + load.others, 0u);
  other.fill(Owner::kRead, 8);
  Transfer::Request read = me.read(other.addresses[Owner::kRead], kBytes);
  read.segment = others;
  EXPECT_EQ(me.run({read}), std::vector{Cause::kDone});
  EXPECT_EQ(wrong_at(std::span(me.memory).first(kBytes), 8), std::nullopt);
}

/// Both engines in this process.
struct Pair {
  explicit Pair(const std::vector<std::string>& providers = {}) {
    Transfer::Options options;
    options.providers = providers;
    owner = std::make_unique<Transfer>(Transfer::open(options).value());
    me = std::make_unique<Transfer>(Transfer::open(options).value());
    (void)me->register_memory(mine.data(), mine.size(), {}).value();
  }
  void open() { segment = me->open_segment(owner->name().value(), 60s).value(); }
  Cause read(const void* there, size_t size_bytes) {
    const auto batch = me->submit({{segment, Transfer::Operation::kRead, mine.data(),
                                    reinterpret_cast<uint64_t>(there), size_bytes}})
                           .value();
    EXPECT_TRUE(me->wait(batch, 60s).value());
    return me->outcomes(batch).value().front().cause;
  }
  std::vector<std::byte> mine = std::vector<std::byte>(kBytes), theirs = mine;
  std::unique_ptr<Transfer> owner, me;
  Transfer::Segment segment{};
};

TEST(TransferMapped, WhatTheLibraryHasNotAllocatedOrWasNotThereYetGoesByTheRails) {
  Pair pair;
  const Transfer::Rights rights{true, true};
  fill(pair.theirs, 9);
  (void)pair.owner->register_memory(pair.theirs.data(), kBytes, rights).value();
  pair.open();
  EXPECT_EQ(pair.read(pair.theirs.data(), kBytes), Cause::kDone);
  EXPECT_EQ(wrong_at(pair.mine, 9), std::nullopt);
  auto* later = static_cast<std::byte*>(pair.owner->allocate_memory(kBytes, rights).value().memory);
  fill({later, kBytes}, 10);
  EXPECT_EQ(pair.read(later, kBytes), Cause::kDone);
  EXPECT_EQ(wrong_at(pair.mine, 10), std::nullopt);
  EXPECT_EQ(moved_by(*pair.me).mapped, 0u);
  EXPECT_EQ(moved_by(*pair.me).by_rails, 2 * kBytes);
  fill({later, kBytes}, 11);
  pair.open();
  EXPECT_EQ(pair.read(later, kBytes), Cause::kDone);
  EXPECT_EQ(wrong_at(pair.mine, 11), std::nullopt);
  EXPECT_EQ(moved_by(*pair.me).mapped, kBytes);
}

TEST(TransferMapped, ProvidersThatDoNotNameItLeaveItOut) {
  for (const auto& [providers, is_mapped] :
       {std::pair{std::vector<std::string>{"tcp;ofi_rxm"}, false},
        std::pair{std::vector<std::string>{"mapped", "tcp;ofi_rxm"}, true}}) {
    Pair pair(providers);
    auto* there =
        static_cast<std::byte*>(pair.owner->allocate_memory(kBytes, {true, false}).value().memory);
    fill({there, kBytes}, 12);
    pair.open();
    EXPECT_EQ(pair.read(there, kBytes), Cause::kDone);
    EXPECT_EQ(wrong_at(pair.mine, 12), std::nullopt);
    EXPECT_EQ(moved_by(*pair.me).mapped, is_mapped ? kBytes : 0);
  }
  Transfer::Options options;
  options.providers = {"mapped"};
  EXPECT_FALSE(Transfer::open(options).ok()) << "there is no rail";
}

TEST(TransferMapped, SegmentsThatAreOpenedAndClosedLeaveNothingBehind) {
  Owner owner({"provider=mapped", "provider=tcp;ofi_rxm", "bytes=65536"});
  Transfer::Options options;
  options.providers = {"mapped", "tcp;ofi_rxm"};
  Initiator me(owner, options);
  const size_t usual_mappings = mapping_count();
  EXPECT_EQ(usual_mappings, 4u) << "two boards and two buffers";
  size_t usual_descriptors = 0;  // the rail over TCP may still connect when a segment is open
  for (int turn = 0; turn < 200; ++turn) {
    ASSERT_TRUE(me.transfer.close_segment(me.segment).ok());
    me.segment = me.transfer.open_segment(owner.name, Initiator::kLimit).value();
    if (turn <= 20) usual_descriptors = std::max(usual_descriptors, descriptor_count());
  }
  EXPECT_TRUE(eventually([&] { return descriptor_count() <= usual_descriptors + 8; }));
  EXPECT_TRUE(eventually([&] { return mapping_count() == usual_mappings; })) << mapping_count();
  EXPECT_TRUE(me.transfer.close_segment(me.segment).ok());
  EXPECT_TRUE(eventually([] { return mapping_count() == 1; })) << "its own board stays";
}

/// As transfer_abi.h says.
TEST(TransferMapped, AChildProcessHasNoneOfIt) {
  auto transfer = Transfer::open({}).value();
  auto* memory = static_cast<char*>(transfer.allocate_memory(kBytes, {true, true}).value().memory);
  *memory = 1;
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL);
    *static_cast<volatile char*>(memory) = 2;
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(*memory, 1);
}

}  // namespace
}  // namespace braid::transfer::test
