// Names of a cluster, in a real Redis server that the test starts.
#include <arpa/inet.h>
#include <sys/socket.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <thread>

#include "transfer/owner.h"

namespace braid::transfer::test {
namespace {

using Cause = Transfer::Cause;
constexpr size_t kBytes = 1 << 20;

uint16_t free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size_bytes = sizeof address;
  (void)bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  (void)getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size_bytes);
  close(socket);
  return ntohs(address.sin_port);
}

/// Owners and initiators have runtime folders of their own, as on two hosts: no socket is shared.
class TransferStore : public testing::Test {
 protected:
  void SetUp() override {
    if (std::system("command -v redis-server >/dev/null && command -v redis-cli >/dev/null") != 0)
      GTEST_SKIP() << "redis-server is not installed";
    port_ = std::to_string(free_port());
    start_server();
  }
  void TearDown() override {
    stop_server();
    std::filesystem::remove_all(folder_);
  }

  void start_server() {
    server_ = fork();
    if (server_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      execlp("redis-server", "redis-server", "--port", port_.c_str(), "--save", "", "--loglevel",
             "warning", nullptr);
      _exit(127);
    }
    for (int i = 0; i < 200 && !ask("ping"); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(25));
  }
  void stop_server() {
    if (server_ <= 0) return;
    kill(server_, SIGKILL);
    waitpid(server_, nullptr, 0);
    server_ = -1;
  }
  bool ask(const std::string& command) const {
    return std::system(("redis-cli -p " + port_ + " " + command + " >/dev/null 2>&1").c_str()) == 0;
  }
  std::string url() const { return "redis://127.0.0.1:" + port_; }

  std::unique_ptr<Owner> owner(const std::string& name) {
    setenv("BRAID_RUNTIME_DIR", (folder_ + "-o" + std::to_string(++owners_)).c_str(), 1);
    auto started = std::make_unique<Owner>(std::vector<std::string>{
        "name=" + name, "store=" + url(), "bytes=" + std::to_string(kBytes)});
    setenv("BRAID_RUNTIME_DIR", folder_.c_str(), 1);
    return started;
  }
  Transfer initiator() const {
    Transfer::Options options;
    options.store = url();
    return Transfer::open(options).value();
  }

  const std::string folder_ = testing::TempDir() + "/braid-store-" + std::to_string(getpid());
  std::string port_;
  pid_t server_ = -1;
  int owners_ = 0;
};

TEST_F(TransferStore, ANameLeadsToItsEngineAndAKilledOnesIsTakenOver) {
  auto first = owner("prefill-0");
  ASSERT_EQ(first->addresses.size(), 4u) << first->name;
  first->fill(Owner::kRead, 1);
  Transfer engine = initiator();
  const auto memory = engine.allocate_memory(kBytes, {}).value();
  const auto read = [&](const Owner& from, Transfer::Segment segment) {
    const auto batch = engine
                           .submit({{segment, Transfer::Operation::kRead, memory.memory,
                                     from.addresses[Owner::kRead], kBytes}})
                           .value();
    EXPECT_TRUE(engine.wait(batch, 20s).value());
    return engine.outcomes(batch).value().front().cause;
  };
  const auto segment = engine.open_segment("prefill-0", 10s);
  ASSERT_TRUE(segment.ok()) << segment.status().message();
  EXPECT_EQ(read(*first, segment.value()), Cause::kDone);
  EXPECT_EQ(wrong_at({static_cast<std::byte*>(memory.memory), kBytes}, 1), std::nullopt);

  const auto second = owner("prefill-0");
  EXPECT_EQ(second->name, "error") << "a live engine keeps its name";
  first->end(SIGKILL);
  const auto third = owner("prefill-0");
  ASSERT_EQ(third->addresses.size(), 4u) << third->name;
  third->fill(Owner::kRead, 2);
  const auto again = engine.open_segment("prefill-0", 10s);
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(read(*third, again.value()), Cause::kDone);
  EXPECT_EQ(wrong_at({static_cast<std::byte*>(memory.memory), kBytes}, 2), std::nullopt);

  stop_server();  // whoever is known is still reached
  EXPECT_EQ(read(*third, again.value()), Cause::kDone);
  const auto unknown = engine.open_segment("prefill-0", 5s);
  ASSERT_FALSE(unknown.ok());
  EXPECT_NE(unknown.status().message().find("store"), std::string::npos);
  start_server();  // empty: the engine puts its name there again
  std::optional<Transfer::Segment> back;
  for (int i = 0; i < 100 && !back; ++i) {
    const auto tried = engine.open_segment("prefill-0", 5s);
    if (tried.ok()) back = tried.value();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  EXPECT_TRUE(back.has_value());
}

TEST_F(TransferStore, OneThatLiesMisdirectsAndAuthorisesNothing) {
  const auto real = owner("decode-0");
  const auto other = owner("decode-1");
  const std::string where = other->name.substr(0, other->name.rfind('/'));
  Transfer engine = initiator();
  for (const std::string& record :
       {where + "/" + std::string(32, '7'), where, std::string("decode-1"), std::string("x y")}) {
    ASSERT_TRUE(ask("set braid:segment:decode-0 '" + record + "'"));
    EXPECT_FALSE(engine.open_segment("decode-0", 5s).ok()) << record;
  }
  EXPECT_FALSE(engine.open_segment("nobody", 5s).ok());
  Transfer::Options options;
  options.store = "http://127.0.0.1:" + port_;
  options.name = "x";
  EXPECT_FALSE(Transfer::open(options).ok());
}

}  // namespace
}  // namespace braid::transfer::test
