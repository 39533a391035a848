// Several small writes that are posted together (Domain::post_writes), on every kind of wire.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "fabric/contract.h"
#include "fabric/ofi/domain.h"
#include "fabric/ofi/imports.h"
#include "fabric/ofi/library.h"

namespace braid::fabric {
namespace {

using test::ContractTest;
using test::End;
using test::some_bytes;

constexpr size_t kSizeBytes = 200;  // of each write

class BatchTest : public ContractTest {
 protected:
  void SetUp() override {
    ContractTest::SetUp();
    if (HasFatalFailure()) return;
    count_ = std::max<size_t>(writer().domain->traits().batched_writes_max, 3);
    bytes_ = some_bytes(count_ * kSizeBytes, 11);
    source_ = source_of(bytes_);
    memory_ = target_of(bytes_.size());
    from_ = add(writer(), source_, Access::kLocal);
    into_ = add(target(), memory_, Access::kRemoteWrite);
    for (size_t i = 0; i < count_; ++i) batch_.push_back(write(i));
  }
  Write write(size_t index) {
    const size_t offset = index * kSizeBytes;
    Write made = to(target().domain->remote_range(into_), offset, from_,
                    source_->bytes().subspan(offset, kSizeBytes), index);
    made.immediate = static_cast<uint32_t>(index);
    return made;
  }
  void post_all() {
    std::span<const Write> left = batch_;
    ASSERT_TRUE(wait([&] {
      left = left.subspan(writer().domain->post_writes(left));
      return left.empty();
    }));
  }
  bool has_landed(size_t index) const {
    const auto now = memory_->get();
    const auto offset = static_cast<std::ptrdiff_t>(index * kSizeBytes);
    return std::equal(now.begin() + offset, now.begin() + offset + kSizeBytes,
                      bytes_.begin() + offset);
  }
  void expect_no_lies() const {
    for (const auto& [context, results] : ends_[0].ended)
      for (const bool ok : results) ASSERT_TRUE(!ok || has_landed(context)) << context;
  }

  size_t count_ = 0;
  std::vector<std::byte> bytes_;
  std::unique_ptr<test::Memory> source_, memory_;
  uint32_t from_ = 0, into_ = 0;
  std::vector<Write> batch_;
};

TEST_P(BatchTest, EachLandsAndIsToldOnce) {
  for (int turn = 0; turn < 20; ++turn) {
    memory_->put(std::vector<std::byte>(bytes_.size()));
    writer().ended.clear();
    target().immediates.clear();
    post_all();
    ASSERT_TRUE(wait(
        [&] { return writer().ended.size() == count_ && target().immediates.size() == count_; }));
    for (size_t i = 0; i < count_; ++i) {
      EXPECT_EQ(writer().ended[i], std::vector{true}) << i;
      EXPECT_EQ(target().immediates[static_cast<uint32_t>(i)], 1) << i;
    }
    EXPECT_EQ(memory_->get(), bytes_);
  }
}

/// While the target does not look, as a process that is stopped, a network may keep what has come.
TEST_P(BatchTest, NoneIsDoneBeforeItHasLanded) {
  post(write(0));
  ASSERT_TRUE(wait([&] { return writer().ended.contains(0); }));
  writer().ended.clear();
  memory_->put(std::vector<std::byte>(bytes_.size()));
  std::span<const Write> left = batch_;
  for (int look = 0; look < 2'000; ++look) {
    if (!left.empty()) left = left.subspan(writer().domain->post_writes(left));
    writer().poll();
    wire_->pass_time();
    if (look % 100 == 0) expect_no_lies();
  }
  ASSERT_TRUE(wait([&] {
    if (!left.empty()) left = left.subspan(writer().domain->post_writes(left));
    return left.empty() && writer().ended.size() == count_;
  }));
  expect_no_lies();
}

TEST_P(BatchTest, NoneIsDoneWhoseRegionWasRemoved) {
  post(write(0));
  ASSERT_TRUE(wait([&] { return writer().ended.contains(0); }));
  writer().ended.clear();
  target().domain->remove_region(into_);
  memory_->put(std::vector<std::byte>(bytes_.size()));
  (void)writer().domain->post_writes(batch_);
  wait([] { return false; }, 20'000);
  for (const auto& [context, results] : writer().ended)
    EXPECT_EQ(results, std::vector{false}) << context;
  EXPECT_EQ(memory_->get(), std::vector<std::byte>(bytes_.size()));
}

/// The connection breaks when the network has all of them, and the target none.
TEST_P(BatchTest, EachIsToldOnceIfTheConnectionBreaks) {
  post(write(0));
  ASSERT_TRUE(wait([&] { return writer().ended.contains(0); }));
  writer().ended.clear();
  memory_->put(std::vector<std::byte>(bytes_.size()));
  const size_t posted = writer().domain->post_writes(batch_);
  for (int look = 0; look < 50; ++look) writer().poll();
  if (!wire_->break_rail(0, 0)) return;
  ASSERT_TRUE(wait([&] { return writer().ended.size() == posted; }));
  wait([] { return false; }, 1'000);
  for (const auto& [context, results] : writer().ended) EXPECT_EQ(results.size(), 1u) << context;
  expect_no_lies();
}

INSTANTIATE_TEST_SUITE_P(WithThread, BatchTest, testing::ValuesIn(test::threaded_wire_kinds()),
                         test::name_of_wire);
INSTANTIATE_TEST_SUITE_P(Wires, BatchTest, testing::ValuesIn(test::wire_kinds()),
                         test::name_of_wire);

// ---- A lock of shm's that is held in the middle of a batch (ofi/robust_locks.h) ----

bool is_shared(const void* place) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    uintptr_t first = 0, end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx", &first, &end) != 2) continue;
    const auto address = reinterpret_cast<uintptr_t>(place);
    if (address >= first && address < end) return line.find("/dev/shm/") != std::string::npos;
  }
  return false;
}

int (*spin_lock)(pthread_spinlock_t*) = nullptr;  // as libfabric would call it
int locks_until_held = 0;
volatile int* held = nullptr;

/// The peer takes the lock first, and is stopped.
int lock_that_is_held(pthread_spinlock_t* lock) {
  if (locks_until_held > 0 && is_shared(const_cast<int*>(lock)) && --locks_until_held == 0) {
    held = lock;
    *held = *held ^ 1;  // libc's word: 1 and 0, or 0 and 1
  }
  return spin_lock(lock);
}

class BatchOverShmTest : public testing::Test {
 protected:
  void SetUp() override {
    for (End& end : ends_) end.domain = ofi::open_domain(*ofi::find_quirks("shm"), "").value();
    const auto before = ofi::replace_import(ofi::library().value()->handle, "pthread_spin_lock",
                                            reinterpret_cast<void*>(lock_that_is_held));
    spin_lock = reinterpret_cast<int (*)(pthread_spinlock_t*)>(before.value());
    Domain& writer = *ends_[0].domain;
    Domain& target = *ends_[1].domain;
    const uint32_t from = writer.add_region(source_, Access::kLocal).value();
    const uint32_t into = target.add_region(memory_, Access::kRemoteWrite).value();
    for (size_t i = 0; i < kCount; ++i) {
      Write write;
      write.region = from;
      write.source = Bytes(source_).subspan(i * kSizeBytes, kSizeBytes);
      write.target_address = target.remote_range(into).base + i * kSizeBytes;
      write.target_key = target.remote_range(into).key;
      write.immediate = static_cast<uint32_t>(i);
      write.context = i;
      batch_.push_back(write);
    }
    connect();
  }
  void TearDown() override {
    (void)ofi::replace_import(ofi::library().value()->handle, "pthread_spin_lock",
                              reinterpret_cast<void*>(spin_lock));
  }
  void connect() {
    const uint32_t peer = ends_[0].domain->connect(ends_[1].domain->address()).value();
    for (Write& write : batch_) write.peer = peer;
    Write first = batch_[0];
    first.context = 1000;
    ASSERT_TRUE(look([&] { return ends_[0].domain->post_write(first); }));
    ASSERT_TRUE(look([&] { return ends_[0].ended.contains(1000); }));
    ends_[0].ended.clear();
    ends_[1].immediates.clear();
    memory_.assign(memory_.size(), std::byte{0});
  }
  bool look(const std::function<bool()>& until) {
    for (test::Patience patience(test::kLooksMax); !patience.is_over();) {
      if (until()) return true;
      for (End& end : ends_) end.poll();
    }
    return until();
  }
  /// The fifth of the writes meets the lock.
  size_t post_into_a_held_lock() {
    locks_until_held = 5;
    const size_t posted = ends_[0].domain->post_writes(batch_);
    EXPECT_NE(held, nullptr);
    return posted;
  }
  void free_lock() { *held = *held ^ 1; }

  static constexpr size_t kCount = 10;
  std::vector<std::byte> source_ = some_bytes(kCount * kSizeBytes, 5);
  std::vector<std::byte> memory_ = std::vector<std::byte>(source_.size());
  End ends_[2];
  std::vector<Write> batch_;
};

TEST_F(BatchOverShmTest, ALockThatIsHeldInTheMiddleFailsNothing) {
  const size_t posted = post_into_a_held_lock();
  ASSERT_EQ(posted, 5u) << "the fifth waits for the lock";
  for (int i = 0; i < 20; ++i) ends_[0].poll();
  EXPECT_TRUE(ends_[0].ended.empty());
  EXPECT_FALSE(ends_[0].domain->arm()) << "it has something to post";
  free_lock();
  ASSERT_TRUE(look([&] { return ends_[0].ended.size() == posted; }));
  for (const auto& [context, results] : ends_[0].ended) {
    EXPECT_EQ(results, std::vector{true}) << context;
    EXPECT_EQ(ends_[1].immediates[static_cast<uint32_t>(context)], 1) << context;
  }
  EXPECT_TRUE(std::equal(memory_.begin(), memory_.begin() + posted * kSizeBytes, source_.begin()));
  EXPECT_EQ(memory_[posted * kSizeBytes], std::byte{0});
}

TEST_F(BatchOverShmTest, APeerThatEndsWithItFailsAllOfThem) {
  const size_t posted = post_into_a_held_lock();
  for (int i = 0; i < 20; ++i) ends_[0].poll();
  ends_[0].domain->abandon(batch_[0].peer, Absence::kEnded);
  free_lock();
  ASSERT_TRUE(look([&] { return ends_[0].ended.size() == posted; }));
  for (const auto& [context, results] : ends_[0].ended)
    EXPECT_EQ(results, std::vector{false}) << context;
  ends_[0].domain->disconnect(batch_[0].peer);
  connect();  // the postings of before are free again
  ASSERT_EQ(ends_[0].domain->post_writes(batch_), kCount);
  ASSERT_TRUE(look([&] { return ends_[0].ended.size() == kCount; }));
  EXPECT_EQ(memory_, source_);
}

}  // namespace
}  // namespace braid::fabric
