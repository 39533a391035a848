// What processes of one host hand each other to map: sealed so that nobody writes without the
// right or meets a page that is gone, and handed to nobody without the secret.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <thread>

#include "base/clock.h"

#include "host/allocation.h"
#include "host/random_number.h"
#include "transfer/pattern.h"
#include "transfer/sharing/mapping.h"
#include "transfer/sharing/server.h"

namespace braid::transfer::test {
namespace {

constexpr size_t kBytes = 1 << 20;
constexpr uint64_t kLimitUs = 10'000'000;

File unsealed(size_t size_bytes) {
  File file(memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(ftruncate(file.get(), static_cast<off_t>(size_bytes)), 0);
  return file;
}

bool can_map_writable(int file) {
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) return false;
  munmap(memory, kBytes);
  return true;
}

TEST(TransferPages, NobodyElseMapsThemWritableWithoutTheRight) {
  const SharedPages made = make_shared_pages(kBytes, shared_kind(false)).value();
  fill(made.pages.bytes(), 1);
  EXPECT_FALSE(can_map_writable(made.file.get()));
  const std::string path = "/proc/self/fd/" + std::to_string(made.file.get());
  const File again(open(path.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_TRUE(again.is_open());
  EXPECT_FALSE(can_map_writable(again.get()));
  const char letter = 'x';
  EXPECT_LT(pwrite(again.get(), &letter, 1, 0), 0);
  EXPECT_LT(ftruncate(again.get(), 0), 0);
  EXPECT_LT(fallocate(again.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kBytes), 0);
  const MappedPages seen = map_shared_pages(made.file, 0, kBytes, false).value();
  EXPECT_NE(mprotect(seen.memory(), kBytes, PROT_READ | PROT_WRITE), 0);
  EXPECT_FALSE(map_shared_pages(made.file, 0, kBytes, true).ok());
  EXPECT_EQ(wrong_at(seen.bytes(), 1), std::nullopt);
  fill(made.pages.bytes(), 2);
  EXPECT_EQ(wrong_at(seen.bytes(), 2), std::nullopt) << "its owner writes on";
}

/// As far as a machine with one node shows it: by what the kernel was told.
TEST(TransferPages, LieOnTheNodeThatWasAskedForWhoeverTouchesThem) {
  const auto policy = [](const void* memory) -> std::pair<int, unsigned long> {
    int mode = -1;
    std::array<unsigned long, 16> nodes{};
    const long failed = syscall(SYS_get_mempolicy, &mode, nodes.data(), 1024, memory, MPOL_F_ADDR);
    return {failed == 0 ? mode : -1, nodes.front()};
  };
  if (policy(&kBytes).first == -1) GTEST_SKIP() << "this kernel has no NUMA policies";
  const auto shared = make_shared_pages(kBytes, shared_kind(false, 0));
  ASSERT_TRUE(shared.ok()) << shared.status().message();
  const auto expected = std::pair<int, unsigned long>(MPOL_PREFERRED, 1);
  EXPECT_EQ(policy(shared.value().pages.memory()), expected);
  const auto own = allocate_privately(kBytes, 0);
  ASSERT_TRUE(own.ok());
  EXPECT_EQ(policy(own.value().pages.memory()), expected);
  const auto anywhere = allocate_shared(kBytes, shared_kind(false));
  ASSERT_TRUE(anywhere.ok());
  EXPECT_EQ(policy(anywhere.value().pages.memory()).first, MPOL_DEFAULT);
  for (const std::byte each : own.value().pages.bytes()) ASSERT_EQ(each, std::byte{0});
}

TEST(TransferPages, ThoseThatMayBeWrittenKeepTheirSize) {
  const SharedPages made = make_shared_pages(kBytes, shared_kind(true)).value();
  const MappedPages seen = map_shared_pages(made.file, 0, kBytes, true).value();
  fill(seen.bytes(), 3);
  EXPECT_EQ(wrong_at(made.pages.bytes(), 3), std::nullopt);
  EXPECT_LT(ftruncate(made.file.get(), 0), 0);
  EXPECT_LT(fcntl(made.file.get(), F_ADD_SEALS, F_SEAL_WRITE), 0);
}

TEST(TransferPages, WhatItsOwnerCouldTakeAwayIsNotMapped) {
  EXPECT_FALSE(map_shared_pages(unsealed(kBytes), 0, kBytes, false).ok());
  EXPECT_FALSE(
      map_shared_pages(make_shared_pages(4096, shared_kind(true)).value().file, 0, kBytes, false)
          .ok());
  FILE* plain = tmpfile();
  EXPECT_EQ(ftruncate(fileno(plain), kBytes), 0);
  EXPECT_FALSE(map_shared_pages(File(dup(fileno(plain))), 0, kBytes, false).ok());
  fclose(plain);
  int both[2];
  ASSERT_EQ(pipe(both), 0);
  const File in(both[0]), out(both[1]);
  EXPECT_FALSE(map_shared_pages(in, 0, kBytes, false).ok());
  EXPECT_FALSE(make_shared_pages(0, shared_kind(true)).ok());
}

fabric::Secret secret_of(char letter) {
  const std::vector<std::byte> key(32, static_cast<std::byte>(letter));
  return fabric::Secret::of(key).value();
}

/// An owner whose server runs in a thread, and the description of what it has.
class TransferSharing : public testing::Test {
 protected:
  TransferSharing() {
    description.incarnation = {random_number(), random_number()};
    description.origin = self;
    server = SharingServer::open(description.incarnation, secret, *sharing).value();
  }
  ~TransferSharing() override { stop(); }

  /// It describes what it hands out, unless it lies.
  std::byte* add(uint64_t buffer, Rights rights) {
    SharedPages made = make_shared_pages(kBytes, shared_kind((rights & kMayWrite) != 0)).value();
    pages.push_back(std::move(made.pages));
    add(buffer, pages.back().bytes(), rights, std::move(made.file));
    return pages.back().bytes().data();
  }
  void add(uint64_t buffer, MutableBytes memory, Rights rights, File file) {
    sharing->add(buffer, memory, rights, std::move(file));
    description.ranges.push_back(
        {reinterpret_cast<uint64_t>(memory.data()), memory.size(), rights});
  }
  void start() {
    thread = std::thread([this] {
      while (!is_over) {
        server->step(monotonic_ns());
        usleep(100);
      }
    });
  }
  void stop() {
    is_over = true;
    if (thread.joinable()) thread.join();
  }
  MappedMemory map(const fabric::Secret& with) {
    return map_memory_of(description, self, with, monotonic_after_ns(kLimitUs));
  }

  const fabric::Origin self{{1, 2}, 3, 4, 5};
  const fabric::Secret secret = secret_of('a');
  std::unique_ptr<Sharing> sharing = Sharing::open();
  std::vector<MappedPages> pages;
  Description description;
  std::unique_ptr<SharingServer> server;
  std::atomic<bool> is_over = false;
  std::thread thread;
};

TEST_F(TransferSharing, AllIsMappedAndClosedWhenItsOwnerRemovesIt) {
  std::byte* readable = add(3, kMayRead);
  std::byte* both = add(7, kMayRead | kMayWrite);
  fill({readable, kBytes}, 4);
  start();
  const MappedMemory mapped = map(secret);
  ASSERT_EQ(mapped.ranges.size(), 2u);
  EXPECT_EQ(mapped.refused, 0u);
  const auto at = [](std::byte* there) { return reinterpret_cast<uint64_t>(there); };
  const MappedRange &first = mapped.ranges[0], &second = mapped.ranges[1];
  EXPECT_EQ(wrong_at({first.at(at(readable)), kBytes}, 4), std::nullopt);
  fill({second.at(at(both)), kBytes}, 5);
  EXPECT_EQ(wrong_at({both, kBytes}, 5), std::nullopt);
  EXPECT_TRUE(first.holds(at(readable) + kBytes - 1, 1));
  EXPECT_FALSE(first.holds(at(readable) + kBytes - 1, 2));
  EXPECT_FALSE(first.holds(at(readable) - 1, 1));
  EXPECT_FALSE(first.holds(at(readable) + 1, ~uint64_t{0}));
  stop();
  sharing->remove(3);
  EXPECT_FALSE(first.is_open());
  EXPECT_TRUE(second.is_open());
  add(8, kMayRead);  // the word of the first is another one's now
  EXPECT_FALSE(first.is_open());
  server.reset();
  sharing.reset();
  EXPECT_FALSE(second.is_open());
}

TEST_F(TransferSharing, NobodyWithoutTheSecretGetsAnything) {
  add(1, kMayRead);
  start();
  EXPECT_TRUE(map(secret_of('b')).ranges.empty());
  const MappedMemory mapped = map(fabric::Secret());
  EXPECT_TRUE(mapped.ranges.empty());
  EXPECT_EQ(mapped.refused, 1u) << "it is counted";
  stop();
  EXPECT_EQ(server->refused(), 2u);
}

/// What was heard on another connection.
TEST_F(TransferSharing, ARecordedQuestionIsOfNoUse) {
  add(1, kMayRead);
  start();
  const auto connect = [&] {
    return *fabric::local::Socket::connect(sharing_socket(description.incarnation)).value();
  };
  const auto receive = [](fabric::local::Socket& socket) {
    EXPECT_TRUE(wait_for(socket.descriptor(), Awaited::kReading, monotonic_after_ns(kLimitUs)));
    return socket.receive();
  };
  fabric::local::Socket first = connect(), second = connect();
  MemoryQuestion question;
  std::memcpy(&question.challenge, receive(first).value().bytes.data(), kChallengeBytes);
  (void)receive(second);
  const auto recorded = encode(question, secret);
  ASSERT_TRUE(first.send(recorded));
  EXPECT_TRUE(receive(first).value().file.is_open());
  ASSERT_TRUE(second.send(recorded));
  EXPECT_FALSE(receive(second).has_value());
  EXPECT_TRUE(second.is_closed());
}

TEST_F(TransferSharing, AnOwnerThatLiesIsNotMapped) {
  std::vector<std::byte> memory(4 * kBytes);
  const auto part = [&](size_t i) { return MutableBytes(memory).subspan(i * kBytes, kBytes); };
  add(1, part(0), kMayRead, unsealed(kBytes));
  add(2, part(1), kMayRead, make_shared_pages(4096, shared_kind(false)).value().file);
  add(3, part(2), kMayRead | kMayWrite, make_shared_pages(kBytes, shared_kind(false)).value().file);
  add(4, part(3), kMayRead, make_shared_pages(kBytes, shared_kind(false)).value().file);
  description.ranges.back().rights = kMayWrite;
  add(5, kMayRead);
  start();
  const MappedMemory mapped = map(secret);
  ASSERT_EQ(mapped.ranges.size(), 1u);
  EXPECT_EQ(mapped.ranges.front().memory().buffer, 5u);
  EXPECT_EQ(mapped.refused, 4u);
}

TEST_F(TransferSharing, AnOwnerThatSaysNothingIsWaitedForNoLongerThanTheLimit) {
  add(1, kMayRead);
  const MappedMemory mapped = map_memory_of(description, self, secret, monotonic_after_ns(50'000));
  EXPECT_TRUE(mapped.ranges.empty());
}

/// It would not be seen to have ended.
TEST_F(TransferSharing, AnOwnerOfAnotherHostOrPidNamespaceIsNotAsked) {
  add(1, kMayRead);
  start();
  description.origin.pid_namespace ^= 1;
  EXPECT_TRUE(map(secret).ranges.empty());
  description.origin = self;
  description.origin.boot[0] ^= 1;
  EXPECT_TRUE(map(secret).ranges.empty());
  description.origin = self;
  EXPECT_EQ(map(secret).ranges.size(), 1u);
}

TEST_F(TransferSharing, OneTooManyIsLeftOut) {
  std::vector<std::byte> memory(kSharedMax + 1);
  for (size_t i = 0; i <= kSharedMax; ++i)
    sharing->add(i + 1, MutableBytes(memory).subspan(i, 1), kMayRead, unsealed(1));
  EXPECT_EQ(sharing->next(kSharedMax - 1).memory.buffer, kSharedMax);
  EXPECT_EQ(sharing->next(kSharedMax).memory.buffer, 0u);
}

}  // namespace
}  // namespace braid::transfer::test
