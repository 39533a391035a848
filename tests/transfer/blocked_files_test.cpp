// File systems that do not answer an `open`: here a lease that a test holds on the file, for which
// the kernel lets every other `open` wait. And those that do not answer reads (hung_folder.h).
#include <dirent.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "transfer/hung_folder.h"
#include "transfer/leased_file.h"
#include "transfer/owner.h"

namespace braid::transfer::test {
namespace {

namespace fs = std::filesystem;
using Cause = Transfer::Cause;
constexpr size_t kBytes = 2 << 20;

int threads() {
  int count = 0;
  DIR* folder = opendir("/proc/self/task");
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

void write_file(const fs::path& path, uint64_t seed) {
  std::vector<std::byte> bytes(kBytes);
  fill(bytes, seed);
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(bytes.data()), kBytes);
}

std::optional<size_t> wrong_in_file(const fs::path& path, uint64_t seed) {
  std::vector<char> text(kBytes);
  std::ifstream(path, std::ios::binary).read(text.data(), kBytes);
  return wrong_at(std::as_bytes(std::span(text)), seed);
}

class TransferBlockedFiles : public testing::Test {
 protected:
  TransferBlockedFiles() {
    fs::create_directories(root);
    write_file(leased, 1);
    write_file(root / "model", 2);
  }
  ~TransferBlockedFiles() override { fs::remove_all(root); }

  /// A process that keeps few files open.
  std::unique_ptr<Owner> owner_of_few() const {
    const FewDescriptors few;
    return std::make_unique<Owner>(
        std::vector<std::string>{"provider=tcp;ofi_rxm", "writable=" + root.string()});
  }
  static Transfer::Options options() {
    Transfer::Options options;
    options.providers = {"tcp;ofi_rxm"};
    return options;
  }
  static Transfer::Segment open(Initiator& me, const std::string& name) {
    const auto file =
        me.transfer.open_file(me.segment, "writable/" + name, {true, true}, Initiator::kLimit);
    EXPECT_TRUE(file.ok()) << file.status().message();
    return file.ok() ? file.value() : Transfer::Segment{};
  }
  /// Memory of the owner, and a file that lies beside.
  static void others_go_on(Initiator& me, const Owner& owner, Transfer::Segment model) {
    for (int turn = 0; turn < 10; ++turn) {
      Transfer::Request file = me.read(0, kBytes);
      file.segment = model;
      EXPECT_EQ(me.run({file, me.write(owner.addresses[Owner::kBoth], 4096, kBytes),
                        me.read(owner.addresses[Owner::kBoth], 4096, kBytes + 4096)}),
                std::vector(3, Cause::kDone));
      EXPECT_EQ(wrong_at({me.memory.data(), kBytes}, 2), std::nullopt);
    }
  }

  const fs::path root =
      fs::path(testing::TempDir()) / ("braid-blocked-" + std::to_string(getpid()));
  const fs::path leased = root / "leased";
};

/// A file that is open at its user, and was closed at its owner, who has to open it again. On a
/// busy machine the deadline of a request may be over before somebody opens it: then others follow.
class TransferClosedFiles : public TransferBlockedFiles {
 protected:
  TransferClosedFiles() {
    for (int i = 0; i < 40; ++i) open(me, "other" + std::to_string(i));
    lease.emplace(leased);
  }
  Transfer::Request of_file(Transfer::Request request, std::chrono::microseconds limit = {}) const {
    request.segment = file;
    request.limit = limit;
    return request;
  }

  const std::unique_ptr<Owner> owner = owner_of_few();
  Initiator me{*owner, options()};
  const Transfer::Segment file = open(me, "leased");
  std::optional<Lease> lease;
};

TEST_F(TransferBlockedFiles, WhileOneIsOpenedEverythingElseOfItsOwnerGoesOn) {
  const std::unique_ptr<Owner> owner = owner_of_few();
  Initiator me(*owner, options());
  const Transfer::Segment model = open(me, "model");
  Lease lease(leased);
  std::optional<Transfer::Segment> opened;
  std::thread opening([&] { opened = open(me, "leased"); });
  EXPECT_TRUE(eventually([&] { return lease.holds_somebody(); }));
  others_go_on(me, *owner, model);
  open(me, "other");
  const auto late = me.transfer.open_file(me.segment, "writable/leased", {true, true}, 100ms);
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(Transfer::cause_of(late.status()), Cause::kDeadline);
  EXPECT_TRUE(lease.holds_somebody()) << "the others have waited for it";
  lease.end();
  opening.join();
  Transfer::Request whole = me.read(0, kBytes);
  whole.segment = *opened;
  EXPECT_EQ(me.run({whole}), std::vector{Cause::kDone});
  EXPECT_EQ(wrong_at({me.memory.data(), kBytes}, 1), std::nullopt);
}

TEST_F(TransferClosedFiles, RequestsForOneThatIsOpenedAgainWaitOrMeetTheirDeadline) {
  const Transfer::Request patient = of_file(me.read(0, 1 << 20, kBytes + (1 << 20)));
  const Transfer::Batch waits = me.submit({patient}),
                        ends = me.submit({of_file(me.read(0, 4096, kBytes + 8192), 200ms)});
  EXPECT_TRUE(eventually([&] { return lease->holds_somebody(); }));
  others_go_on(me, *owner, open(me, "model"));
  EXPECT_EQ(me.end(ends).front().cause, Cause::kDeadline);
  EXPECT_TRUE(lease->holds_somebody()) << "the others have waited for it";
  EXPECT_FALSE(me.transfer.wait(waits, 0ms).value());
  lease->end();
  EXPECT_EQ(me.end(waits).front().cause, Cause::kDone);
  EXPECT_EQ(wrong_at({static_cast<std::byte*>(patient.local), patient.size_bytes}, 1),
            std::nullopt);
}

/// What is late there is seen by its deadline alone: the way itself works.
TEST_F(TransferClosedFiles, RequestsMeetTheirDeadlineWhileOthersGoOnOverTheOnlyWay) {
  const auto meet_their_deadlines = [&] {
    const auto submitted = std::chrono::steady_clock::now();
    const Transfer::Batch reads = me.submit({of_file(me.read(0, 1 << 20, kBytes), 200ms)}),
                          writes = me.submit({of_file(me.write(0, 1 << 20, kBytes), 200ms)});
    const auto have_ended = [&] {
      return me.transfer.wait(reads, 0ms).value() && me.transfer.wait(writes, 0ms).value();
    };
    while (!have_ended() && std::chrono::steady_clock::now() < submitted + 10s)
      EXPECT_EQ(me.run({me.read(owner->addresses[Owner::kBoth], 4096)}), std::vector{Cause::kDone});
    ASSERT_TRUE(have_ended()) << "they wait as long as others go on";
    EXPECT_EQ(me.end(reads).front().cause, Cause::kDeadline);
    EXPECT_EQ(me.end(writes).front().cause, Cause::kDeadline);
  };
  EXPECT_TRUE(eventually([&] {
    meet_their_deadlines();
    return lease->holds_somebody() || HasFailure();
  }));
  const auto report = nlohmann::json::parse(me.transfer.report(Transfer::Form::kJson).value());
  EXPECT_EQ(report.at("braid_transfer").at("fences"), 0) << "the others had to wait";
  lease->end();
  EXPECT_EQ(me.run({me.read(owner->addresses[Owner::kBoth], 4096)}), std::vector{Cause::kDone});
  EXPECT_EQ(wrong_in_file(leased, 1), std::nullopt);
}

TEST_F(TransferClosedFiles, AWriteThatWasGivenUpWritesNothingOnceTheFileIsOpen) {
  fill(me.memory, 3);
  EXPECT_TRUE(eventually([&] {
    EXPECT_EQ(me.run({of_file(me.write(0, kBytes), 200ms)}), std::vector{Cause::kDeadline});
    return lease->holds_somebody();
  }));
  lease->end();
  EXPECT_EQ(me.run({of_file(me.read(0, kBytes))}), std::vector{Cause::kDone});
  EXPECT_EQ(wrong_at({me.memory.data(), kBytes}, 1), std::nullopt);
  EXPECT_EQ(wrong_in_file(leased, 1), std::nullopt);
}

/// Reads that meet their deadlines, together of more than the owner has memory for.
TEST_F(TransferBlockedFiles, AFolderThatAnswersNoReadLeavesTheOthersTheirShareOfTheLink) {
  HungFolder hung(root / "hung");
  if (!hung.is_mounted()) GTEST_SKIP() << "this process may not mount FUSE";
  const Owner owner({"provider=tcp;ofi_rxm", "readable=" + (root / "hung").string(),
                     "writable=" + root.string()});
  Initiator me(owner, options());
  const Transfer::Segment model = open(me, "model");
  Transfer::Request read = me.read(0, 1 << 20, kBytes);
  read.segment =
      me.transfer.open_file(me.segment, "readable/file", {true, false}, Initiator::kLimit).value();
  for (int i = 0; i < 20; ++i) {
    read.limit = 50ms;
    EXPECT_EQ(me.run({read}), std::vector{Cause::kDeadline});
  }
  EXPECT_GT(hung.waiting(), 0u);
  others_go_on(me, owner, model);
  hung.answer();
  read.limit = {};
  EXPECT_EQ(me.run({read}), std::vector{Cause::kDone});
  EXPECT_EQ(wrong_at({static_cast<std::byte*>(read.local), read.size_bytes}, HungFolder::kSeed),
            std::nullopt);
}

/// Of this process itself, whose engine is closed while the file system still does not answer.
TEST_F(TransferBlockedFiles, OfItsOwnHoldUpNoEngineNorItsEnd) {
  auto transfer = std::make_optional(Transfer::open({}).value());
  ASSERT_TRUE(transfer->export_folder("store", root.string(), {true, true}).ok());
  const auto own = transfer->open_segment(transfer->name().value(), 10s).value();
  const auto model = transfer->open_file(own, "store/model", {true, true}, 10s).value();
  std::vector<std::byte> bytes(kBytes);
  ASSERT_TRUE(transfer->register_memory(bytes.data(), kBytes, {}).ok());
  Lease lease(leased);
  EXPECT_TRUE(eventually([&] {  // the deadline may be over before somebody opens it
    const auto late = transfer->open_file(own, "store/leased", {true, true}, 50ms);
    EXPECT_EQ(Transfer::cause_of(late.status()), Cause::kDeadline);
    return lease.holds_somebody();
  }));
  const auto batch =
      transfer->submit({{model, Transfer::Operation::kRead, bytes.data(), 0, kBytes}}).value();
  EXPECT_TRUE(transfer->wait(batch, 20s).value());
  EXPECT_EQ(wrong_at(bytes, 2), std::nullopt);
  transfer.reset();
  EXPECT_TRUE(lease.holds_somebody()) << "the end has waited for it";
  const int left = threads();
  lease.end();
  EXPECT_TRUE(eventually([&] { return threads() < left; })) << "what was left behind does not end";
}

/// What the kernel has begun to read for the process itself goes to the process's own memory, and
/// keeps its place until the file system answers. Everything else goes on, or meets its deadline.
TEST_F(TransferBlockedFiles, AnOwnFolderThatAnswersNoReadHoldsUpNoOtherOne) {
  constexpr size_t kReads = 200, kBegunMax = 64;
  HungFolder hung(root / "hung");
  if (!hung.is_mounted()) GTEST_SKIP() << "this process may not mount FUSE";
  auto transfer = Transfer::open({}).value();
  ASSERT_TRUE(transfer.export_folder("hung", (root / "hung").string(), {true, false}).ok());
  ASSERT_TRUE(transfer.export_folder("store", root.string(), {true, false}).ok());
  const auto own = transfer.open_segment(transfer.name().value(), 10s).value();
  const auto stuck = transfer.open_file(own, "hung/file", {true, false}, 10s).value();
  const auto model = transfer.open_file(own, "store/model", {true, false}, 10s).value();
  std::vector<std::byte> bytes(6 * kBytes);
  ASSERT_TRUE(transfer.register_memory(bytes.data(), bytes.size(), {}).ok());
  const auto read = [&](Transfer::Segment file, uint64_t position, size_t size, size_t at,
                        std::chrono::microseconds limit) {
    return Transfer::Request{file,
                             Transfer::Operation::kRead,
                             bytes.data() + at,
                             position,
                             size,
                             Transfer::Urgency::kBulk,
                             limit};
  };
  std::vector<Transfer::Request> small;
  for (size_t i = 0; i < kReads; ++i) small.push_back(read(stuck, i * 4096, 4096, i * 4096, 50ms));
  const auto late = transfer.submit(small).value();
  const auto ended = [&] {
    const auto all = transfer.outcomes(late).value();
    return std::count_if(all.begin(), all.end(),
                         [](const auto& one) { return one.cause == Cause::kDeadline; });
  };
  EXPECT_TRUE(eventually([&] { return ended() >= static_cast<long>(kReads - kBegunMax); }));
  const auto large = transfer.submit({read(stuck, 0, 2 * kBytes, kBytes, {})}).value();
  const auto other = transfer.submit({read(model, 0, kBytes, 5 * kBytes, {})}).value();
  EXPECT_TRUE(transfer.wait(other, 20s).value()) << "it has waited for the other folder";
  EXPECT_EQ(wrong_at({bytes.data() + 5 * kBytes, kBytes}, 2), std::nullopt);
  EXPECT_FALSE(transfer.wait(large, 0ms).value());
  hung.answer();
  EXPECT_TRUE(transfer.wait(late, 20s).value());
  EXPECT_EQ(ended(), static_cast<long>(kReads));
  EXPECT_TRUE(transfer.wait(large, 20s).value());
  EXPECT_EQ(wrong_at({bytes.data() + kBytes, 2 * kBytes}, HungFolder::kSeed), std::nullopt);
}

/// They wait for a file that is opened again.
TEST_F(TransferBlockedFiles, RequestsForOwnFilesMeetTheirDeadline) {
  std::optional<FewDescriptors> few(std::in_place);
  auto transfer = Transfer::open({}).value();
  few.reset();
  ASSERT_TRUE(transfer.export_folder("store", root.string(), {true, true}).ok());
  const auto own = transfer.open_segment(transfer.name().value(), 10s).value();
  const auto file = transfer.open_file(own, "store/leased", {true, true}, 10s).value();
  for (int i = 0; i < 40; ++i)
    ASSERT_TRUE(transfer.open_file(own, "store/other" + std::to_string(i), {true, true}, 10s).ok());
  std::vector<std::byte> bytes(kBytes);
  ASSERT_TRUE(transfer.register_memory(bytes.data(), kBytes, {}).ok());
  Lease lease(leased);
  Transfer::Request read{file, Transfer::Operation::kRead, bytes.data(), 0, kBytes};
  const auto patient = transfer.submit({read}).value();
  read.limit = 50ms;
  const auto late = transfer.submit({read}).value();
  ASSERT_TRUE(eventually([&] { return lease.holds_somebody(); }));
  ASSERT_TRUE(transfer.wait(late, 20s).value());
  EXPECT_EQ(transfer.outcomes(late).value().front().cause, Cause::kDeadline);
  EXPECT_TRUE(lease.holds_somebody());
  ASSERT_TRUE(transfer.cancel(patient).ok());
  ASSERT_TRUE(transfer.wait(patient, 20s).value());
  EXPECT_EQ(transfer.outcomes(patient).value().front().cause, Cause::kCancelled);
  EXPECT_TRUE(lease.holds_somebody());
  lease.end();
  read.limit = {};
  const auto again = transfer.submit({read}).value();
  ASSERT_TRUE(transfer.wait(again, 20s).value());
  EXPECT_EQ(wrong_at(bytes, 1), std::nullopt);
}

}  // namespace
}  // namespace braid::transfer::test
