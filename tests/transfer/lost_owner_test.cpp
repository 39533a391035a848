// open_segment of an owner that is lost: its description is there, and it is not.
#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/clock.h"
#include "transfer/directory/resolve.h"
#include "transfer/directory/server.h"
#include "transfer/failure.h"
#include "transfer/owner.h"

namespace braid::transfer::test {
namespace {

constexpr uint64_t kLongNs = 20'000'000'000;

/// Answers questions as the engine of that description would.
class Answering {
 public:
  explicit Answering(const Description& description)
      : server_(
            DirectoryServer::open({"127.0.0.1", 0}, "", {},
                                  {description.incarnation, [description] { return description; },
                                   [](const auto&) { return std::string(); }})
                .value()),
        thread_([this] {
          while (!is_over_) server_->step(monotonic_ns());
        }) {}
  ~Answering() {
    is_over_ = true;
    thread_.join();
  }
  std::string name() const { return "braid://127.0.0.1:" + std::to_string(server_->at().port); }

 private:
  std::unique_ptr<DirectoryServer> server_;
  std::atomic<bool> is_over_ = false;
  std::thread thread_;
};

/// The description came just before it ended.
TEST(TransferLostOwner, OneWhoseProcessHasEndedIsPeerLostLongBeforeTheLimit) {
  Owner owner({"provider=tcp;ofi_rxm"});
  const auto description =
      resolve(parse_name(owner.name).value(), {}, {}, monotonic_ns() + kLongNs);
  ASSERT_TRUE(description.ok()) << description.status().message();
  owner.end(SIGKILL);
  const Answering in_its_place(description.value());
  Transfer::Options options;
  options.providers = {"tcp;ofi_rxm"};
  Transfer transfer = Transfer::open(options).value();
  const auto begun = std::chrono::steady_clock::now();
  const auto opened = transfer.open_segment(in_its_place.name(), 300s);
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(Transfer::cause_of(opened.status()), Transfer::Cause::kPeerLost)
      << opened.status().message();
  EXPECT_LT(std::chrono::steady_clock::now() - begun, 100s);
}

/// It says so, and nothing has to be timed out.
TEST(TransferLostOwner, OneThatClosesAndWhoseProcessLivesOnIsPeerLostAtOnce) {
  Transfer::Options options;
  options.providers = {"tcp;ofi_rxm"};
  Transfer me = Transfer::open(options).value();
  std::vector<std::byte> mine(4096), theirs(4096);
  ASSERT_TRUE(me.register_memory(mine.data(), mine.size(), {}).ok());
  Transfer::Request request{.operation = Transfer::Operation::kWrite,
                            .local = mine.data(),
                            .address = reinterpret_cast<uint64_t>(theirs.data()),
                            .size_bytes = theirs.size()};
  {
    Transfer owner = Transfer::open(options).value();
    ASSERT_TRUE(
        owner.register_memory(theirs.data(), theirs.size(), {.may_read = true, .may_write = true})
            .ok());
    request.segment = me.open_segment(owner.name().value(), 20s).value();
  }
  const Transfer::Batch batch = me.submit({request}).value();
  ASSERT_TRUE(me.wait(batch, 3s).value()) << "it waits for the heartbeat";
  EXPECT_EQ(me.outcomes(batch).value().at(0).cause, Transfer::Cause::kPeerLost);
  const auto ways =
      me.explain(request.segment, 64, Transfer::Urgency::kBulk, Transfer::Form::kText);
  EXPECT_EQ(Transfer::cause_of(ways.status()), Transfer::Cause::kPeerLost)
      << "it has no way, and why";
}

TEST(TransferLostOwner, OneWhoseHostCannotBeReachedIsPeerLost) {
  if (unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0)
    GTEST_SKIP() << "a process without a network cannot be made here";
  const auto found =
      resolve(parse_name("braid://10.9.8.7:4750").value(), {}, {}, monotonic_ns() + kLongNs);
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(cause_of(found.status()), Cause::kPeerLost) << found.status().message();
}

}  // namespace
}  // namespace braid::transfer::test
