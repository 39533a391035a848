// Memory that other processes have mapped: whose it is, and until when.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <functional>

#include "fabric/call_filter.h"
#include "fabric/local/domain.h"
#include "fabric/local/limits.h"
#include "fabric/staged_fixture.h"
#include "fabric/wires.h"
#include "support/eventually.h"

namespace braid::fabric {
namespace {

/// A process that asks for the memory behind a key, to map it, and then does nothing any more, or
/// closes before it has looked at the answer, perhaps when there is no room to say anything more,
/// or leaves a child process behind.
class Mapper {
 public:
  enum class Then : uint8_t { kNothing, kCloses, kFillsAndCloses, kForks };
  explicit Mapper(Then then = Then::kNothing) : then_(then) {
    EXPECT_EQ(pipe(ends_), 0);
    EXPECT_EQ(pipe2(said_, O_NONBLOCK), 0);
    process_ = fork();
    if (process_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      ask();
    }
  }
  ~Mapper() {
    end();
    for (const int file : {ends_[0], ends_[1], said_[0], said_[1]}) ::close(file);
  }
  void start(Bytes address, const RemoteRange& range) {
    std::vector<std::byte> words(sizeof range);
    std::memcpy(words.data(), &range, sizeof range);
    words.insert(words.end(), address.begin(), address.end());
    EXPECT_EQ(::write(ends_[1], words.data(), words.size()), static_cast<ssize_t>(words.size()));
  }
  /// Of one that closes: it may, as it has been answered.
  void close() { EXPECT_EQ(::write(ends_[1], "c", 1), 1); }
  /// Whether it has asked, or has closed, since the last time.
  bool goes_on() {
    char letter = 0;
    return ::read(said_[0], &letter, 1) == 1;
  }
  void end() {
    if (process_ <= 0) return;
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
    process_ = -1;
  }

 private:
  [[noreturn]] void ask() {
    std::byte words[256];
    const ssize_t size_bytes = ::read(ends_[0], words, sizeof words);
    RemoteRange range;
    if (size_bytes <= static_cast<ssize_t>(sizeof range)) _exit(1);
    std::memcpy(&range, words, sizeof range);
    auto domain = local::open_domain().value();
    std::vector<std::byte> source(64);
    Write write;
    write.peer =
        domain->connect(Bytes(words, static_cast<size_t>(size_bytes)).subspan(sizeof range))
            .value();
    write.region = domain->add_region(source, Access::kLocal).value();
    write.source = source;
    write.target_address = range.base;
    write.target_key = range.key;
    (void)domain->post_write(write);
    if (then_ == Then::kForks && fork() == 0) {  // the child ends with the test
      ::close(ends_[1]);
      (void)!::read(ends_[0], words, 1);
      _exit(0);
    }
    say();
    if (then_ == Then::kNothing || then_ == Then::kForks)
      for (;;) pause();
    if (::read(ends_[0], words, 1) != 1) _exit(1);
    if (then_ == Then::kFillsAndCloses) fill(*domain, write);
    domain.reset();
    say();
    for (;;) pause();
  }
  static void fill(Domain& domain, const Write& write) {
    const std::vector<std::byte> all(local::kMessageBytesMax);
    for (const size_t size_bytes : {all.size(), size_t{1000}, size_t{0}})
      while (domain.post_send(write.peer, write.region, Bytes(all).first(size_bytes), 1)) {
      }
  }
  void say() const {
    if (::write(said_[1], "s", 1) != 1) _exit(1);
  }

  Then then_;
  int ends_[2] = {-1, -1}, said_[2] = {-1, -1};
  pid_t process_ = -1;
};

constexpr uint32_t kPeerPidfd = 77;  // SO_PEERPIDFD, which older headers lack

/// From now on this thread cannot open the process of a number, as one of another PID namespace has
/// none here, or, `of_sockets`, that at the other end of a socket, as with Linux before 6.5. False:
/// the kernel does not let itself be filtered.
bool refuse_process_files(bool of_sockets) {
  using namespace test;
  return filter_calls({load_number(), skip_unless(SYS_pidfd_open, 1), refuse(EINVAL),
                       skip_unless(SYS_getsockopt, 3), load_argument(2), skip_unless(kPeerPidfd, 1),
                       of_sockets ? refuse(ENOPROTOOPT) : allow(), allow()});
}

bool knows_processes_of_sockets() {
  int ends[2] = {-1, -1}, file = -1;
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
  socklen_t size_bytes = sizeof file;
  const bool is_known = getsockopt(ends[0], SOL_SOCKET, kPeerPidfd, &file, &size_bytes) == 0;
  for (const int each : {ends[0], ends[1], file}) ::close(each);
  return is_known;
}

/// Memory of a GPU, and of the host.
class HeldTest : public testing::TestWithParam<const char*> {
 protected:
  static void expect_that_memory_is_held_until_the_end(Mapper::Then then);
  static void expect_that_who_closes_holds_nothing(Mapper::Then then);
};

void look(Domain& domain) {
  Completion completions[4];
  domain.poll(completions);
  usleep(200);
}
/// It answers, if it has been asked.
void look_on(Domain& domain) {
  for (int i = 0; i < 500; ++i) look(domain);
}
bool wait(Domain& domain, const std::function<bool()>& until) {
  return braid::test::eventually([&] {
    look(domain);
    return until();
  });
}

void HeldTest::expect_that_memory_is_held_until_the_end(Mapper::Then then) {
  Mapper mapper(then);  // before the driver starts: a child cannot use it
  const auto wire = kind_named(GetParam()).make();
  const auto owner = wire->open(1);
  const auto memory = wire->memory(1, 4096);
  const uint32_t region = owner->add_region(memory->bytes(), Access::kRemoteWrite).value();
  ASSERT_TRUE(owner->removal_fences(region));
  mapper.start(owner->address(), owner->remote_range(region));
  ASSERT_TRUE(wait(*owner, [&] { return mapper.goes_on(); }));
  look_on(*owner);
  owner->remove_region(region);
  look_on(*owner);
  EXPECT_EQ(owner->drain(region), Drain::kHeldByPeer) << "it may still write";
  mapper.end();
  EXPECT_TRUE(wait(*owner, [&] { return owner->drain(region) == Drain::kOver; }));
}

TEST_P(HeldTest, MemoryIsHeldUntilTheProcessThatMappedItHasEnded) {
  expect_that_memory_is_held_until_the_end(Mapper::Then::kNothing);
}

/// The child has the socket too, and so it stays open.
TEST_P(HeldTest, MemoryIsNotHeldByAChildOfTheProcessThatMappedIt) {
  expect_that_memory_is_held_until_the_end(Mapper::Then::kForks);
}

/// So it may be of another PID namespace, as in another container.
TEST_P(HeldTest, AProcessWithoutANumberHoldsMemoryUntilItHasEnded) {
  if (!knows_processes_of_sockets()) GTEST_SKIP() << "this needs Linux 6.5";
  if (!refuse_process_files(false)) GTEST_SKIP() << "no filter of system calls";
  expect_that_memory_is_held_until_the_end(Mapper::Then::kNothing);
}

TEST(HeldMemoryTest, AProcessWhoseEndNobodyWouldTellMapsNoHostMemory) {
  Mapper mapper;
  if (!refuse_process_files(true)) GTEST_SKIP() << "no filter of system calls";
  const auto wire = kind_named("local_host_to_mapped").make();
  const auto owner = wire->open(1), writer = wire->open(0);
  const auto memory = wire->memory(1, 4096);
  const uint32_t region = owner->add_region(memory->bytes(), Access::kRemoteWrite).value();
  const RemoteRange range = owner->remote_range(region);
  mapper.start(owner->address(), range);
  ASSERT_TRUE(wait(*owner, [&] { return mapper.goes_on(); }));
  look_on(*owner);
  auto source = test::some_bytes(4096, 1);
  Write write;
  write.peer = writer->connect(owner->address()).value();
  write.region = writer->add_region(source, Access::kLocal).value();
  write.source = source;
  write.target_address = range.base;
  write.target_key = range.key;
  ASSERT_TRUE(writer->post_write(write));
  ASSERT_TRUE(wait(*owner, [&] {
    Completion completion;
    return writer->poll({&completion, 1}) == 1 && completion.ok;
  })) << "the queue is left";
  EXPECT_EQ(memory->get(), source);
  owner->remove_region(region);
  EXPECT_EQ(owner->drain(region), Drain::kOver) << "it would be held for ever";
}

void HeldTest::expect_that_who_closes_holds_nothing(Mapper::Then then) {
  Mapper mapper(then);  // before the driver starts: a child cannot use it
  const auto wire = kind_named(GetParam()).make();
  const auto owner = wire->open(1);
  const auto memory = wire->memory(1, 4096);
  const uint32_t region = owner->add_region(memory->bytes(), Access::kRemoteWrite).value();
  mapper.start(owner->address(), owner->remote_range(region));
  ASSERT_TRUE(wait(*owner, [&] { return mapper.goes_on(); }));
  look_on(*owner);
  mapper.close();
  ASSERT_TRUE(braid::test::eventually([&] { return mapper.goes_on(); }));
  std::vector<std::byte> buffer(local::kMessageBytesMax);
  const uint32_t into = owner->add_region(buffer, Access::kLocal).value();
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(owner->post_receive(into, buffer, 1));
  look_on(*owner);
  owner->remove_region(region);
  EXPECT_TRUE(wait(*owner, [&] { return owner->drain(region) == Drain::kOver; }))
      << "the process lives, and is believed to hold the memory";
}

TEST_P(HeldTest, WhoClosesBeforeItHasLookedHoldsNothing) {
  expect_that_who_closes_holds_nothing(Mapper::Then::kCloses);
}

TEST_P(HeldTest, WhoClosesWhenTheQueueIsFullHoldsNothing) {
  expect_that_who_closes_holds_nothing(Mapper::Then::kFillsAndCloses);
}

INSTANTIATE_TEST_SUITE_P(Local, HeldTest,
                         testing::Values("local_gpu_to_shared", "local_host_to_mapped"),
                         [](const auto& kind) { return std::string(kind.param); });

}  // namespace
}  // namespace braid::fabric
