// A local domain beside processes of its user that say what none of braid's says.
#include <dirent.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <functional>
#include <string>

#include "fabric/local/domain.h"
#include "fabric/local/limits.h"
#include "fabric/local/parts.h"
#include "fabric/wires.h"

namespace braid::fabric::local {
namespace {

size_t open_files() {
  size_t count = 0;
  DIR* folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

std::string name_of(Bytes address) {
  return {reinterpret_cast<const char*>(address.data()), address.size()};
}

/// A plain socket, which has connected to that name.
File connected_to(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto size_bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  File file(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(file.get(), reinterpret_cast<const sockaddr*>(&address), size_bytes), 0);
  return file;
}

void send_files(const File& socket, Bytes bytes, const std::array<int, 2>& files) {
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof files)> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof files);
  std::memcpy(CMSG_DATA(header), files.data(), sizeof files);
  EXPECT_EQ(sendmsg(socket.get(), &message, 0), static_cast<ssize_t>(bytes.size()));
}

TEST(LocalSocketTest, FilesThatNobodyAskedForAreClosed) {
  auto listener = Socket::listen("braid-test-" + std::to_string(getpid())).value();
  const File plain = connected_to("braid-test-" + std::to_string(getpid()));
  auto accepted = listener.accept();
  ASSERT_TRUE(accepted);
  const size_t before = open_files();
  const std::array<std::byte, 3> bytes{};
  for (int i = 0; i < 10; ++i) {
    send_files(plain, bytes, {STDIN_FILENO, STDIN_FILENO});
    EXPECT_TRUE(accepted->receive());
  }
  send_files(plain, {}, {STDIN_FILENO, STDIN_FILENO});
  EXPECT_FALSE(accepted->receive());
  EXPECT_EQ(open_files(), before);
}

/// Says hello, and then whatever it is told to.
class Liar {
 public:
  explicit Liar(Domain& owner, uint64_t hello = hello_of(kVersions.newest))
      : owner_(owner),
        socket_(Socket::connect(name_of(owner.address())).value().value()),
        created_(CreatedSegment::create().value()),
        producer_(&created_.segment.shared().to_owner) {
    EXPECT_TRUE(socket_.send(bytes_of(hello), created_.file.get()));
  }
  /// As much as the owner takes of it, while its user takes a completion at a look.
  template <typename T>
  size_t say(Kind kind, const T& thing) {
    size_t said = 0;
    for (int look = 0; look < 2000; ++look) {
      while (producer_.put(kind, bytes_of(thing))) ++said;
      Completion completion;
      if (owner_.poll({&completion, 1}) > 0) slices += completion.slices;
    }
    return said;
  }

  uint64_t slices = 0;

 private:
  Domain& owner_;
  Socket socket_;
  CreatedSegment created_;
  Producer producer_;
};

/// What the queues of both ways hold, and a few for each look.
constexpr size_t kMost = 100'000;

TEST(LocalLiesTest, ImmediatesThatNobodyTakesWait) {
  constexpr uint64_t kCount = 1000;
  const auto owner = open_domain().value();
  Liar liar(*owner);
  const size_t said = liar.say(kLanded, Landed{7, kCount});
  EXPECT_LT(said, kMost);
  std::array<Completion, 64> completions;
  while (const size_t taken = owner->poll(completions))
    for (size_t i = 0; i < taken; ++i) liar.slices += completions[i].slices;
  EXPECT_EQ(liar.slices, said * kCount) << "none is lost";
}

TEST(LocalLiesTest, AHelloOfAVersionThatNobodySpeaksIsNotListenedTo) {
  const auto owner = open_domain().value();
  Liar liar(*owner, hello_of(kVersions.newest + 1));
  liar.say(kLanded, Landed{7, 1});
  EXPECT_EQ(liar.slices, 0u);
}

/// Whoever writes knows by the address, and names the cause.
TEST(LocalLiesTest, AnAddressSaysWhichVersionsItsDomainSpeaks) {
  const auto owner = open_domain().value();
  const auto writer = open_domain().value();
  const std::string name = name_of(owner->address());
  const auto connect = [&](const std::string& to) {
    return writer->connect({reinterpret_cast<const std::byte*>(to.data()), to.size()});
  };
  ASSERT_TRUE(name.ends_with(".1.1"));
  const std::string stem = name.substr(0, name.size() - 4);
  EXPECT_EQ(connect(stem + ".3.2").status().message(),
            "the peer shares memory within the host by versions 2 to 3, and this engine by version "
            "1. Use the same version of braid on both sides");
  EXPECT_TRUE(connect(stem + ".2.1").ok()) << "it speaks the version before, too";
  EXPECT_TRUE(connect(stem).ok()) << "from before addresses said so";
  EXPECT_TRUE(connect(name).ok());
  EXPECT_FALSE(connect(stem + ".0.0").ok());
  EXPECT_FALSE(connect(stem + ".1.2").ok());
}

TEST(LocalLiesTest, WhoTakesNoAnswersIsGivenUp) {
  const auto owner = open_domain().value();
  HostWrite write;
  write.is_last = 1;  // with a key of nothing
  EXPECT_LT(Liar(*owner).say(kBytes, write), kMost);
  EXPECT_LT(Liar(*owner).say(kAsk, Numbered{12, 1}), kMost);
}

TEST(LocalLiesTest, SilentStrangersKeepNobodyOut) {
  const auto owner = open_domain().value();
  std::vector<File> strangers;
  Completion completion;
  for (int i = 0; i < 100; ++i) {
    strangers.push_back(connected_to(name_of(owner->address())));
    usleep(100);
    owner->poll({&completion, 1});
  }
  const auto writer = open_domain().value();
  std::vector<std::byte> source(10, std::byte{5}), target(10);
  Write write;
  write.peer = writer->connect(owner->address()).value();
  write.region = writer->add_region(source, Access::kLocal).value();
  write.source = source;
  write.target_key =
      owner->remote_range(owner->add_region(target, Access::kRemoteWrite).value()).key;
  ASSERT_TRUE(writer->post_write(write));
  size_t ended = 0;
  for (test::Patience patience(10'000); ended == 0 && !patience.is_over();) {
    owner->poll({&completion, 1});
    ended = writer->poll({&completion, 1});
  }
  ASSERT_EQ(ended, 1u);
  EXPECT_TRUE(completion.ok);
  EXPECT_EQ(target, source);
}

}  // namespace
}  // namespace braid::fabric::local
