// GPU memory between engines: of two processes, and of one where the driver can share memory within
// it alone. Every way that can carry it, every byte verified.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "support/gate.h"
#include "support/lock_holder.h"
#include "tools/rail_sockets.h"
#include "transfer/gpu_memory.h"

namespace braid::transfer::test {
namespace {

namespace fs = std::filesystem;
using Cause = Transfer::Cause;
using Operation = Transfer::Operation;
constexpr size_t kBytes = 5 << 20;

/// An engine that reads and writes from memory of a GPU and of the host.
struct Mover {
  Mover(CUdeviceptr on_gpu, const Transfer::Options& options, const std::string& owner)
      : transfer(Transfer::open(options).value()), host(kBytes) {
    EXPECT_TRUE(transfer.register_memory(reinterpret_cast<void*>(on_gpu), kBytes, {}).ok());
    EXPECT_TRUE(transfer.register_memory(host.data(), host.size(), {}).ok());
    const auto opened = transfer.open_segment(owner, kLimit);
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    if (opened.ok()) segment = opened.value();
  }
  Transfer::Request request(Operation operation, void* local, uint64_t there, size_t size_bytes) {
    return {segment, operation, local, there, size_bytes};
  }

  Transfer transfer;
  std::vector<std::byte> host;
  Transfer::Segment segment{};
};

// ---- One process ----

class TransferGpuEngines : public GpuTest, public testing::WithParamInterface<const char*> {};

/// Two engines of one process, over one provider each time.
TEST_P(TransferGpuEngines, MoveBetweenEveryPairOfMemories) {
  const std::vector<std::string> providers{GetParam()};
  use_gpu(gpu(1));
  DeviceBuffer far(driver(), kBytes);
  std::vector<std::byte> far_host(kBytes);
  auto owner = Transfer::open(gpu_options(providers)).value();
  ASSERT_TRUE(owner.register_memory(at(far.at()), kBytes, {true, true}).ok());
  ASSERT_TRUE(owner.register_memory(far_host.data(), kBytes, {true, true}).ok());
  use_gpu(0);
  DeviceBuffer near(driver(), kBytes);
  Mover me(near.at(), gpu_options(providers), owner.name().value());
  const auto far_address = reinterpret_cast<uint64_t>(far_host.data());
  // GPU to GPU, both operations.
  put_pattern(near.at(), kBytes, 1);
  ASSERT_EQ(run(me.transfer, {me.request(Operation::kWrite, at(near.at()), far.at(), kBytes)}),
            std::vector{Cause::kDone});
  EXPECT_EQ(wrong_on_gpu(far.at(), kBytes, 1), std::nullopt);
  put_pattern(far.at(), kBytes, 2);
  ASSERT_EQ(run(me.transfer, {me.request(Operation::kRead, at(near.at()), far.at(), kBytes)}),
            std::vector{Cause::kDone});
  EXPECT_EQ(wrong_on_gpu(near.at(), kBytes, 2), std::nullopt);
  // Host and GPU.
  fill(me.host, 3);
  ASSERT_EQ(run(me.transfer, {me.request(Operation::kWrite, me.host.data(), far.at(), kBytes)}),
            std::vector{Cause::kDone});
  EXPECT_EQ(wrong_on_gpu(far.at(), kBytes, 3), std::nullopt);
  put_pattern(far.at(), kBytes, 4);
  ASSERT_EQ(run(me.transfer, {me.request(Operation::kRead, me.host.data(), far.at(), kBytes)}),
            std::vector{Cause::kDone});
  EXPECT_EQ(wrong_at(me.host, 4), std::nullopt);
  put_pattern(near.at(), kBytes, 5);
  ASSERT_EQ(run(me.transfer, {me.request(Operation::kWrite, at(near.at()), far_address, kBytes)}),
            std::vector{Cause::kDone});
  EXPECT_EQ(wrong_at(far_host, 5), std::nullopt);
  fill(far_host, 6);
  ASSERT_EQ(run(me.transfer, {me.request(Operation::kRead, at(near.at()), far_address, kBytes)}),
            std::vector{Cause::kDone});
  EXPECT_EQ(wrong_on_gpu(near.at(), kBytes, 6), std::nullopt);
}

INSTANTIATE_TEST_SUITE_P(Providers, TransferGpuEngines, testing::Values("local", "tcp;ofi_rxm+gpu"),
                         [](const auto& provider) {
                           return std::string(provider.param).substr(0, 3);
                         });

// ---- Two processes ----

/// The owner's process is made before this one starts the driver.
class TransferGpuPair : public GpuTest {
 protected:
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) / ("braid-gpu-pair-" + std::to_string(getpid()));
    fs::create_directories(root_);
    std::vector<std::string> arguments = owner_arguments();
    arguments.insert(arguments.end(),
                     {"bytes=" + std::to_string(kBytes), "writable=" + root_.string()});
    choose_profile("h20x8");  // for both
    owner_.emplace(arguments);
    GpuTest::SetUp();
    if (IsSkipped()) return;
    memory_ = std::make_unique<DeviceBuffer>(driver(), kBytes);
    me_.emplace(memory_->at(), options(), owner_->name);
  }
  ~TransferGpuPair() override {
    me_.reset();
    fs::remove_all(root_);
  }
  virtual std::vector<std::string> owner_arguments() const { return {"gpu=1"}; }
  virtual Transfer::Options options() const { return gpu_options(); }

  uint64_t there(size_t buffer = Owner::kBoth) const { return owner_->addresses[buffer]; }
  CUdeviceptr here() const { return memory_->at(); }
  Transfer::Request write(uint64_t to, size_t size_bytes, size_t offset = 0) {
    return me_->request(Operation::kWrite, at(here() + offset), to, size_bytes);
  }
  Transfer::Request read(uint64_t from, size_t size_bytes, size_t offset = 0) {
    return me_->request(Operation::kRead, at(here() + offset), from, size_bytes);
  }
  std::vector<Cause> run(const std::vector<Transfer::Request>& requests) {
    return test::run(me_->transfer, requests);
  }
  /// There and back, each verified.
  void move(uint64_t seed) {
    put_pattern(here(), kBytes, seed);
    ASSERT_EQ(run({write(there(), kBytes)}), std::vector{Cause::kDone});
    ASSERT_EQ(owner_->check(Owner::kBoth, seed, 0, kBytes), "right");
    put_pattern(here(), kBytes, seed + 1000);
    ASSERT_EQ(run({read(there(), kBytes)}), std::vector{Cause::kDone});
    ASSERT_EQ(wrong_on_gpu(here(), kBytes, seed), std::nullopt);
  }

  fs::path root_;
  std::optional<Owner> owner_;
  std::unique_ptr<DeviceBuffer> memory_;
  std::optional<Mover> me_;
};

TEST_F(TransferGpuPair, MovesBetweenGpusHostsAndFiles) {
  move(1);
  // Host memory here.
  fill(me_->host, 3);
  ASSERT_EQ(run({me_->request(Operation::kWrite, me_->host.data(), there(), kBytes)}),
            std::vector{Cause::kDone});
  EXPECT_EQ(owner_->check(Owner::kBoth, 3, 0, kBytes), "right");
  std::fill(me_->host.begin(), me_->host.end(), std::byte{0});
  ASSERT_EQ(run({me_->request(Operation::kRead, me_->host.data(), there(), kBytes)}),
            std::vector{Cause::kDone});
  EXPECT_EQ(wrong_at(me_->host, 3), std::nullopt);
  // A file there: to it from the GPU, and from it to the GPU, in one batch with another request.
  const auto file =
      me_->transfer.open_file(me_->segment, "writable/kv", {true, true}, kLimit).value();
  put_pattern(here(), kBytes, 4);
  auto to_file = write(0, kBytes - 3);
  to_file.segment = file;
  ASSERT_EQ(run({to_file}), std::vector{Cause::kDone});
  put_pattern(here(), kBytes, 5);
  owner_->fill(Owner::kRead, 6);
  auto from_file = read(7, 3'000'001);
  from_file.segment = file;
  ASSERT_EQ(run({from_file, read(there(Owner::kRead), 1 << 20, 4 << 20)}),
            std::vector(2, Cause::kDone));
  EXPECT_EQ(wrong_on_gpu(here(), 3'000'001, 4, 7), std::nullopt);
  EXPECT_EQ(wrong_on_gpu(here() + (4 << 20), 1 << 20, 6), std::nullopt);
}

TEST_F(TransferGpuPair, ItsOwnerEnforcesRightsAndBordersAndEachBadRequestFailsAlone) {
  for (size_t buffer : {Owner::kRead, Owner::kWrite, Owner::kBoth, Owner::kNone})
    owner_->fill(buffer, 7);
  put_pattern(here(), kBytes, 8);
  EXPECT_EQ(run({write(there(Owner::kRead), 4096), read(there(Owner::kWrite), 4096),
                 write(there(Owner::kNone), 4096), read(there(Owner::kNone), 4096),
                 write(there() + kBytes - 8, 16), write(there(), 4096)}),
            (std::vector{Cause::kNotAllowed, Cause::kNotAllowed, Cause::kNotAllowed,
                         Cause::kNotAllowed, Cause::kOutside, Cause::kDone}));
  EXPECT_EQ(wrong_on_gpu(here(), kBytes, 8), std::nullopt);
  for (size_t buffer : {Owner::kRead, Owner::kWrite, Owner::kNone})
    EXPECT_EQ(owner_->check(buffer, 7, 0, kBytes), "right") << buffer;
  EXPECT_EQ(owner_->check(Owner::kBoth, 8, 0, 4096), "right");
}

TEST_F(TransferGpuPair, WhatItsOwnerTakesBackIsNotWrittenAnyMore) {
  move(1);
  EXPECT_EQ(owner_->ask("unregister " + std::to_string(Owner::kBoth)), "gone");
  EXPECT_EQ(run({write(there(), 4096)}), std::vector{Cause::kOutside});
  EXPECT_EQ(owner_->check(Owner::kBoth, 1, 0, kBytes), "right");
}

TEST_F(TransferGpuPair, AnOwnerThatStandsStillIsWaitedForAndNothingLandsLate) {
  for (uint64_t turn = 0; turn < 4; ++turn) {
    put_pattern(here(), kBytes, 10 + turn);
    const auto batch = me_->transfer.submit({write(there(), kBytes)}).value();
    owner_->stop();
    std::this_thread::sleep_for(std::chrono::milliseconds(30 + 40 * turn));
    owner_->signal(SIGCONT);
    ASSERT_EQ(end(me_->transfer, batch), std::vector{Cause::kDone}) << turn;
    ASSERT_EQ(owner_->check(Owner::kBoth, 10 + turn, 0, kBytes), "right") << turn;
    owner_->fill(Owner::kBoth, 50 + turn);
    const auto reading = me_->transfer.submit({read(there(), kBytes)}).value();
    owner_->stop();
    std::this_thread::sleep_for(30ms);
    owner_->signal(SIGCONT);
    ASSERT_EQ(end(me_->transfer, reading), std::vector{Cause::kDone}) << turn;
    ASSERT_EQ(wrong_on_gpu(here(), kBytes, 50 + turn), std::nullopt) << turn;
    put_pattern(here(), kBytes, 90);  // the memory is the caller's again
    std::this_thread::sleep_for(60ms);
    ASSERT_EQ(wrong_on_gpu(here(), kBytes, 90), std::nullopt) << turn;
    ASSERT_EQ(owner_->check(Owner::kBoth, 50 + turn, 0, kBytes), "right") << turn;
  }
}

TEST_F(TransferGpuPair, WhatIsCancelledIsFinal) {
  for (uint64_t turn = 0; turn < 4; ++turn) {
    put_pattern(here(), kBytes, 20 + turn);
    const auto batch =
        me_->transfer.submit({write(there(), kBytes), read(there(Owner::kRead), kBytes)}).value();
    std::this_thread::sleep_for(std::chrono::milliseconds(turn));
    ASSERT_TRUE(me_->transfer.cancel(batch).ok());
    for (const Cause cause : end(me_->transfer, batch))
      EXPECT_TRUE(cause == Cause::kDone || cause == Cause::kCancelled);
    owner_->fill(Owner::kBoth, 60 + turn);
    put_pattern(here(), kBytes, 91);
    std::this_thread::sleep_for(50ms);
    EXPECT_EQ(owner_->check(Owner::kBoth, 60 + turn, 0, kBytes), "right") << turn;
    EXPECT_EQ(wrong_on_gpu(here(), kBytes, 91), std::nullopt) << turn;
  }
}

TEST_F(TransferGpuPair, AnOwnerThatDiesIsLostAndNothingHangs) {
  move(1);
  const auto batch = me_->transfer.submit({write(there(), kBytes), read(there(), kBytes)}).value();
  owner_->end(SIGKILL);
  for (const Cause cause : end(me_->transfer, batch))
    EXPECT_TRUE(cause == Cause::kPeerLost || cause == Cause::kDone);
  EXPECT_EQ(run({write(there(), 4096)}), std::vector{Cause::kPeerLost});
}

TEST_F(TransferGpuPair, ExplainNamesEachHopAndWhatItWouldTake) {
  const std::string text =
      me_->transfer.explain(write(there(), kBytes), Transfer::Form::kText).value();
  EXPECT_NE(text.find("GPU 0 to host memory"), std::string::npos) << text;
  EXPECT_NE(text.find("host memory to GPU"), std::string::npos) << text;
  EXPECT_NE(text.find("+gpu"), std::string::npos) << text;
}

// ---- An owner without GPU memory: chunks go through host memory here ----

class TransferGpuToHostOwner : public TransferGpuPair {
 protected:
  std::vector<std::string> owner_arguments() const override {
    return {"provider=tcp;ofi_rxm", "address=127.0.0.1", "address=127.0.0.2"};
  }
  Transfer::Options options() const override {
    Transfer::Options options;
    options.gpu_memory = true;
    options.addresses = {"127.0.0.1", "127.0.0.2"};
    return options;
  }
};

TEST_F(TransferGpuToHostOwner, MovesThroughHostMemoryHere) {
  for (uint64_t turn = 0; turn < 3; ++turn) move(1 + turn);
  const auto file =
      me_->transfer.open_file(me_->segment, "writable/kv", {true, true}, kLimit).value();
  put_pattern(here(), kBytes, 4);
  auto to_file = write(0, kBytes);
  to_file.segment = file;
  ASSERT_EQ(run({to_file}), std::vector{Cause::kDone});
  put_pattern(here(), kBytes, 5);
  auto from_file = read(0, kBytes);
  from_file.segment = file;
  ASSERT_EQ(run({from_file}), std::vector{Cause::kDone});
  EXPECT_EQ(wrong_on_gpu(here(), kBytes, 4), std::nullopt);
  const std::string text =
      me_->transfer.explain(write(there(), kBytes), Transfer::Form::kText).value();
  EXPECT_NE(text.find("GPU 0 to host memory"), std::string::npos) << text;
}

TEST_F(TransferGpuToHostOwner, RailsThatBreakUnderLoadFailNothing) {
  move(1);
  int broken = 0;
  for (uint64_t turn = 0; turn < 4; ++turn) {
    put_pattern(here(), kBytes, 2 + turn);
    std::vector<Transfer::Request> requests;
    for (size_t place = 0; place < kBytes; place += 1 << 20)
      requests.push_back(write(there() + place, 1 << 20, place));
    const auto batch = me_->transfer.submit(requests).value();
    std::this_thread::sleep_for(std::chrono::milliseconds(turn));
    broken += tools::break_connections(turn % 2 == 0 ? "127.0.0.1" : "127.0.0.2");
    EXPECT_EQ(end(me_->transfer, batch), std::vector(requests.size(), Cause::kDone)) << turn;
    EXPECT_EQ(owner_->check(Owner::kBoth, 2 + turn, 0, kBytes), "right") << turn;
    const auto reading = me_->transfer.submit({read(there(), kBytes)}).value();
    broken += tools::break_connections(turn % 2 == 0 ? "127.0.0.2" : "127.0.0.1");
    EXPECT_EQ(end(me_->transfer, reading), std::vector{Cause::kDone}) << turn;
    EXPECT_EQ(wrong_on_gpu(here(), kBytes, 2 + turn), std::nullopt) << turn;
  }
  EXPECT_GT(broken, 0);
}

TEST_F(TransferGpuToHostOwner, AnOwnerThatStandsStillIsWaitedForAndNothingLandsLate) {
  for (uint64_t turn = 0; turn < 3; ++turn) {
    owner_->fill(Owner::kBoth, 50 + turn);
    const auto reading = me_->transfer.submit({read(there(), kBytes)}).value();
    owner_->stop();
    std::this_thread::sleep_for(std::chrono::milliseconds(30 + 40 * turn));
    owner_->signal(SIGCONT);
    ASSERT_EQ(end(me_->transfer, reading), std::vector{Cause::kDone}) << turn;
    ASSERT_EQ(wrong_on_gpu(here(), kBytes, 50 + turn), std::nullopt) << turn;
    put_pattern(here(), kBytes, 90);
    std::this_thread::sleep_for(100ms);
    ASSERT_EQ(wrong_on_gpu(here(), kBytes, 90), std::nullopt) << turn;
  }
}

/// What was read has come, and its copy to the GPU is held up in the driver: whatever is fenced
/// meanwhile, the request is not final, since the copy would land in memory that is used again.
TEST_F(TransferGpuToHostOwner, ARequestIsNotFinalWhileItsLastHopIsUnderWay) {
  if (!is_emulated()) GTEST_SKIP() << "waived: the lock is the emulated driver's";
  owner_->fill(Owner::kBoth, 60);
  ASSERT_EQ(run({read(there(), kBytes)}), std::vector{Cause::kDone});
  CUdeviceptr freed = 0;
  MUST(driver(), cuMemAlloc(&freed, 4096));
  braid::test::Gate gate(driver());
  gate.hold(new_stream());
  {
    braid::test::LockHolder holder(driver(), context(0), freed);
    const auto held = me_->transfer.submit({read(there(), 1 << 20)}).value();
    EXPECT_FALSE(me_->transfer.wait(held, 150ms).value());
    fill(me_->host, 62);
    for (int turn = 0; turn < 5; ++turn)
      EXPECT_EQ(
          run({me_->request(Operation::kWrite, me_->host.data(), there(Owner::kWrite), kBytes)}),
          std::vector{Cause::kDone})
          << "host memory goes on";
    EXPECT_EQ(owner_->check(Owner::kWrite, 62, 0, kBytes), "right");
    ASSERT_TRUE(me_->transfer.cancel(held).ok());
    EXPECT_FALSE(me_->transfer.wait(held, 2500ms).value()) << "it ended, and would land";
    EXPECT_FALSE(holder.has_ended());
    gate.open();
    EXPECT_EQ(end(me_->transfer, held), std::vector{Cause::kCancelled});
  }
  put_pattern(here(), kBytes, 92);
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(wrong_on_gpu(here(), kBytes, 92), std::nullopt);
  move(61);
}

// ---- An engine without GPU memory ----

class TransferGpuPlain : public GpuTest {};

TEST_F(TransferGpuPlain, WhoHasNoRailForGpusIsToldSoAtThatRequestAlone) {
  Owner owner({"gpu=1", "bytes=4096"});
  Initiator me(owner);
  EXPECT_EQ(me.run({me.write(owner.addresses[Owner::kBoth], 4096)}), std::vector{Cause::kNoWay});
}

}  // namespace
}  // namespace braid::transfer::test
