// Rails over TCP without a secret, and processes of another user of this host that keep to no rule.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "fabric/ofi/domain.h"
#include "fabric/ofi/quirks.h"
#include "fabric/other_library.h"
#include "fabric/telling_process.h"
#include "fabric/two_users.h"
#include "host/file.h"
#include "host/tcp_owner.h"
#include "support/eventually.h"

namespace braid::fabric {
namespace {

constexpr uid_t kStranger = 65533;
constexpr int kSecondMs = 1000;

void become_stranger() { test::become(kStranger); }

sockaddr_in socket_address(Bytes name) {
  sockaddr_in address{};
  std::memcpy(&address, name.data(), std::min(name.size(), sizeof address));
  return address;
}

File new_socket() { return File(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)); }

/// What a process shares with the one that has made it.
struct Seen {
  std::atomic<int> connections = 0;
  std::atomic<int> bytes = 0;
  std::atomic<bool> has_ended = false;
  std::array<std::byte, kAddressBytesMax> address{};
  std::atomic<size_t> address_bytes = 0;
};

class StrangersTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "only root can be another user";
    open();
    void* const memory =
        mmap(nullptr, sizeof(Seen), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    seen_ = new (memory) Seen;  // owner: this fixture
  }
  void TearDown() override {
    if (seen_ != nullptr) munmap(seen_, sizeof *seen_);
  }
  void open() { domain_ = ofi::open_domain(*ofi::find_quirks(GetParam()), "127.0.0.1").value(); }
  void expect_not_taken();
  void poll() {
    Completion completion;
    while (domain_->poll({&completion, 1}) > 0)
      posted_ok_ = posted_ok_ || (completion.event == Event::kPosted && completion.ok);
  }

  std::unique_ptr<Domain> domain_;
  Seen* seen_ = nullptr;
  bool posted_ok_ = false;
};

INSTANTIATE_TEST_SUITE_P(All, StrangersTest, testing::Values("tcp;ofi_rxm", "net"),
                         [](const auto& all) {
                           return std::string(all.param) == "net" ? "net" : "tcp";
                         });

void StrangersTest::expect_not_taken() {
  const uint32_t door = domain_->open_door().value();
  const std::array entrances = {socket_address(domain_->address()),
                                socket_address(domain_->door_address(door))};
  std::array<File, 2> connections;
  const test::TellingProcess stranger(
      [&] {
        become_stranger();
        bool are_made = true;
        for (size_t i = 0; i < entrances.size(); ++i) {
          connections[i] = new_socket();
          are_made = are_made &&
                     connect(connections[i].get(), reinterpret_cast<const sockaddr*>(&entrances[i]),
                             sizeof entrances[i]) == 0;
        }
        return std::string(are_made ? "connected" : "");
      },
      [&] {
        char byte = 0;
        for (const File& each : connections)
          (void)!recv(each.get(), &byte, 1, 0);  // returns when the connection has ended
        seen_->has_ended = true;
        pause();
      });
  ASSERT_EQ(stranger.told(), "connected") << "the kernel does that";
  EXPECT_TRUE(braid::test::eventually([&] {
    poll();
    return domain_->rejections().refused == 2 && seen_->has_ended;
  }));
}

/// libfabric would believe it whatever port of another process it names, and send there what is for
/// that process.
TEST_P(StrangersTest, AConnectionOfAnotherUserIsNotTaken) { expect_not_taken(); }

TEST_P(StrangersTest, NorIsItWhereAnotherBraidLibraryOfTheProcessHasEngines) {
  const test::OtherLibrary other(GetParam());
  expect_not_taken();
}

/// The rail of a stranger who does not look at users himself.
class StrangersRail {
 public:
  StrangersRail(const char* provider, Bytes address, Seen& seen)
      : domain_(
            ofi::open_domain(*ofi::find_quirks(provider), "127.0.0.1", Admits::kAnybody).value()),
        seen_(seen),
        region_(domain_->add_region(message_, Access::kLocal).value()),
        peer_(domain_->connect(address).value()) {}

  void try_to_send() {
    is_posted_ = is_posted_ || domain_->post_send(peer_, region_, message_, 1);
    Completion completion;
    if (domain_->poll({&completion, 1}) == 0 || completion.event != Event::kPosted) return;
    is_posted_ = false;
    seen_.bytes += completion.ok ? static_cast<int>(message_.size()) : 0;
  }

 private:
  std::vector<std::byte> message_ = std::vector<std::byte>(256, std::byte{7});
  std::unique_ptr<Domain> domain_;
  Seen& seen_;
  uint32_t region_, peer_;
  bool is_posted_ = false;
};

TEST_P(StrangersTest, NoMessageOfAnotherUserComes) {
  domain_.reset();  // a child process would have a copy of what libfabric has
  std::unique_ptr<StrangersRail> rail;
  const test::TellingProcess stranger(
      [&] {
        become_stranger();
        return std::string("waits");
      },
      [&] {
        if (seen_->address_bytes == 0) return;
        if (rail == nullptr)
          rail = std::make_unique<StrangersRail>(
              GetParam(), Bytes(seen_->address).first(seen_->address_bytes), *seen_);
        rail->try_to_send();
        usleep(100);
      });
  ASSERT_EQ(stranger.told(), "waits");
  open();
  std::vector<std::byte> room(4096);
  ASSERT_TRUE(domain_->post_receive(domain_->add_region(room, Access::kLocal).value(), room, 1));
  std::copy(domain_->address().begin(), domain_->address().end(), seen_->address.begin());
  seen_->address_bytes = domain_->address().size();
  EXPECT_TRUE(braid::test::eventually([&] {
    poll();
    return domain_->rejections().refused >= 2 || seen_->bytes > 0;
  })) << "libfabric tries again";
  EXPECT_EQ(seen_->bytes, 0);
  EXPECT_EQ(room.front(), std::byte{0});
}

TEST_P(StrangersTest, AConnectionOfTheSameUserIsTaken) {
  const sockaddr_in at = socket_address(domain_->address());
  const File own = new_socket();
  ASSERT_EQ(connect(own.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at), 0);
  for (int i = 0; i < 100; ++i) {
    poll();
    usleep(1000);
  }
  pollfd look{own.get(), POLLIN | POLLRDHUP, 0};
  EXPECT_EQ(::poll(&look, 1, 0), 0) << "the domain waits for what it says";
  EXPECT_EQ(domain_->rejections().refused, 0u);
}

TEST_P(StrangersTest, AnAddressWhereAnotherUserListensIsRefused) {
  const test::TellingProcess stranger([] {
    become_stranger();
    static const File listener = new_socket();
    sockaddr_in at{AF_INET, 0, {htonl(INADDR_LOOPBACK)}, {}};
    if (bind(listener.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0 ||
        listen(listener.get(), 8) != 0)
      return std::string();
    return std::to_string(ntohs(TcpEnd::own_of(listener.get())->port));
  });
  ASSERT_FALSE(stranger.told().empty());
  sockaddr_in at = socket_address(domain_->address());
  at.sin_port = htons(static_cast<uint16_t>(std::stoul(stranger.told())));
  const auto peer = domain_->connect(std::as_bytes(std::span(&at, 1)));
  ASSERT_FALSE(peer.ok());
  EXPECT_EQ(peer.status().message(),
            "the peer at 127.0.0.1:" + stranger.told() +
                " is another user's process. Run both as one user, or give both engines the same "
                "secret (BRAID_FABRIC_SECRET_FILE)");
}

TEST_P(StrangersTest, AnAddressOfNoOnePeerIsRefused) {
  sockaddr_in at = socket_address(domain_->address());
  at.sin_addr.s_addr = htonl(INADDR_ANY);
  EXPECT_FALSE(domain_->connect(std::as_bytes(std::span(&at, 1))).ok());
  at.sin_addr.s_addr = inet_addr("192.0.2.1");
  EXPECT_FALSE(domain_->connect(std::as_bytes(std::span(&at, 1))).ok()) << "of another host";
  at.sin_family = AF_UNIX;
  EXPECT_FALSE(domain_->connect(std::as_bytes(std::span(&at, 1))).ok());
}

/// The peer ends between the look at who listens and libfabric's connection, and a stranger takes
/// its port.
TEST_P(StrangersTest, WhoTakesAPeersPortGetsNoByte) {
  sockaddr_in at{AF_INET, 0, {htonl(INADDR_LOOPBACK)}, {}};
  std::optional<File> peers = new_socket();
  ASSERT_EQ(bind(peers->get(), reinterpret_cast<const sockaddr*>(&at), sizeof at), 0);
  ASSERT_EQ(listen(peers->get(), 8), 0);
  at.sin_port = TcpEnd::own_of(peers->get())->port;
  sockaddr_in name = socket_address(domain_->address());
  name.sin_port = at.sin_port;
  const auto peer = domain_->connect(std::as_bytes(std::span(&name, 1)));
  ASSERT_TRUE(peer.ok()) << peer.status().message();
  peers.reset();

  static File listener;
  const test::TellingProcess thief(
      [&] {
        become_stranger();
        listener = new_socket();
        const int yes = 1;
        setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
        const bool listens =
            bind(listener.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0 &&
            listen(listener.get(), 8) == 0;
        return std::string(listens ? "listens" : "");
      },
      [this] {
        const File connection(accept(listener.get(), nullptr, nullptr));
        ++seen_->connections;
        std::array<char, 64> bytes{};
        const ssize_t read = recv(connection.get(), bytes.data(), bytes.size(), 0);
        if (read > 0) seen_->bytes += static_cast<int>(read);
      });
  ASSERT_EQ(thief.told(), "listens");

  std::vector<std::byte> message(256, std::byte{7});
  const uint32_t region = domain_->add_region(message, Access::kLocal).value();
  bool is_posted = false;
  EXPECT_TRUE(braid::test::eventually([&] {
    is_posted = is_posted || domain_->post_send(peer.value(), region, message, 1);
    poll();
    return seen_->connections > 0 && domain_->rejections().refused > 0;
  }));
  for (int i = 0; i < kSecondMs / 10; ++i) {
    poll();
    usleep(1000);
  }
  EXPECT_EQ(seen_->bytes, 0);
  EXPECT_FALSE(posted_ok_);
}

}  // namespace
}  // namespace braid::fabric
