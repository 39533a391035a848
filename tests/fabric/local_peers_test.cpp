// A local domain whose peers come and go: what it holds stays the same.
#include <dirent.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <string>

#include "fabric/local/domain.h"
#include "fabric/wires.h"

namespace braid::fabric {
namespace {

constexpr size_t kBytes = 1000;

/// Both ends of each connection are in this process.
struct Holdings {
  size_t files = 0;
  size_t segments = 0;

  static Holdings now() {
    Holdings holdings;
    DIR* folder = opendir("/proc/self/fd");
    while (readdir(folder) != nullptr) ++holdings.files;
    closedir(folder);
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);)
      holdings.segments += line.find("memfd:braid-local") != std::string::npos ? 1 : 0;
    return holdings;
  }
  bool operator==(const Holdings&) const = default;
};
void PrintTo(const Holdings& holdings, std::ostream* out) {
  *out << holdings.files << " files, " << holdings.segments << " segments";
}

class LocalPeersTest : public testing::Test {
 protected:
  void SetUp() override {
    from_ = writer_->add_region(source_, Access::kLocal).value();
    open_owner();
  }
  void open_owner() {
    owner_ = local::open_domain().value();
    const uint32_t into = owner_->add_region(target_, Access::kRemoteWrite).value();
    range_ = owner_->remote_range(into);
  }
  bool wait(const std::function<bool()>& until) {
    for (test::Patience patience(20'000); !until() && !patience.is_over();) look();
    return until();
  }
  void look_on(int looks) {
    for (int i = 0; i < looks; ++i) look();
  }
  void look() {
    Completion completion;
    if (writer_->poll({&completion, 1}) > 0) ended_ = completion.ok;
    if (owner_ != nullptr) (void)owner_->poll({&completion, 1});
  }
  /// Whether it has ended well.
  bool write_to(uint32_t peer) {
    Write write;
    write.peer = peer;
    write.region = from_;
    write.source = source_;
    write.target_key = range_.key;
    ended_.reset();
    EXPECT_TRUE(writer_->post_write(write));
    return wait([&] { return ended_.has_value(); }) && *ended_;
  }
  uint32_t connect() { return writer_->connect(owner_->address()).value(); }
  bool holds_as_before(const Holdings& before) {
    return wait([&] { return Holdings::now() == before; });
  }

  std::vector<std::byte> source_ = test::some_bytes(kBytes, 3), target_{kBytes};
  std::unique_ptr<Domain> writer_ = local::open_domain().value(), owner_;
  uint32_t from_ = 0;
  RemoteRange range_;
  std::optional<bool> ended_;
};

TEST_F(LocalPeersTest, ConnectionsThatWereEndedLeaveNothing) {
  const Holdings before = Holdings::now();
  for (int visit = 0; visit < 100; ++visit) {
    std::fill(target_.begin(), target_.end(), std::byte{0});
    const uint32_t peer = connect();
    EXPECT_LT(peer, 5u) << "numbers of peers that have gone are used again";
    ASSERT_TRUE(write_to(peer)) << visit;
    EXPECT_EQ(target_, source_);
    writer_->disconnect(peer);
    look_on(5);
  }
  EXPECT_TRUE(holds_as_before(before))
      << testing::PrintToString(Holdings::now()) << ", before " << testing::PrintToString(before);
}

TEST_F(LocalPeersTest, ConnectionsWhoseOwnerHasEndedLeaveNothing) {
  owner_.reset();
  const Holdings before = Holdings::now();
  for (int visit = 0; visit < 20; ++visit) {
    open_owner();
    const uint32_t peer = connect();
    ASSERT_TRUE(write_to(peer)) << visit;
    owner_.reset();
    look_on(50);
    EXPECT_TRUE(holds_as_before(before)) << "before it is disconnected";
    EXPECT_FALSE(write_to(peer));
    writer_->disconnect(peer);
  }
  look_on(5);
  open_owner();
  EXPECT_LT(connect(), 5u);
}

/// Whoever posts keeps to the limit of all postings, but each peer with nothing under way may have
/// one (Worker::Rail::has_room).
TEST_F(LocalPeersTest, APeerThatTakesNothingHoldsUpNobodyElse) {
  const auto stopped = local::open_domain().value();
  Write write;
  write.peer = writer_->connect(stopped->address()).value();
  write.region = from_;
  write.source = Bytes(source_).first(1);
  for (uint64_t i = 0; i < writer_->traits().postings_max; ++i)
    ASSERT_TRUE(writer_->post_write(write)) << i;
  EXPECT_TRUE(write_to(connect()));
  EXPECT_EQ(target_, source_);
}

TEST_F(LocalPeersTest, ManyMayConnectWhileTheOwnerIsNotLooking) {
  constexpr size_t kWriters = 100;  // more than the strangers that may be silent
  std::vector<std::unique_ptr<Domain>> writers;
  for (size_t i = 0; i < kWriters; ++i) {
    Domain& writer = *writers.emplace_back(local::open_domain().value());
    Write write;
    write.peer = writer.connect(owner_->address()).value();
    write.region = writer.add_region(source_, Access::kLocal).value();
    write.source = source_;
    write.target_key = range_.key;
    ASSERT_TRUE(writer.post_write(write));
  }
  size_t good = 0, bad = 0;
  wait([&] {
    for (const auto& writer : writers) {
      Completion completion;
      if (writer->poll({&completion, 1}) > 0) ++(completion.ok ? good : bad);
    }
    return good + bad == kWriters;
  });
  EXPECT_EQ(good, kWriters) << bad << " have failed";
  EXPECT_EQ(target_, source_);
}

}  // namespace
}  // namespace braid::fabric
