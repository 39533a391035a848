// Names of a cluster, in real servers of Redis and etcd that the test starts.
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/clock.h"
#include "support/in_time.h"
#include "support/own_folder.h"
#include "transfer/directory/server.h"
#include "transfer/owner.h"
#include "transfer/store_server.h"

namespace braid::transfer::test {
namespace {

using Cause = Transfer::Cause;
using braid::test::is_once_within;
using std::chrono::milliseconds;
constexpr size_t kBytes = 1 << 20;

/// Owners and initiators have runtime folders of their own, as on two hosts: no socket is shared.
class TransferStore : public testing::TestWithParam<StoreKind> {
 protected:
  void SetUp() override {
    if (!server_.is_installed()) GTEST_SKIP() << server_.program() << " is not installed";
    ASSERT_TRUE(server_.start()) << server_.program() << " does not start";
    setenv("BRAID_RUNTIME_DIR", initiators_.c_str(), 1);
  }

  /// `secret`: what its file holds; empty: it has none.
  std::unique_ptr<Owner> owner(const std::string& name, const std::string& secret = {}) {
    setenv("BRAID_RUNTIME_DIR", folder_.file("o" + std::to_string(++owners_)).c_str(), 1);
    std::vector<std::string> arguments = {"name=" + name, "store=" + server_.url(),
                                          "bytes=" + std::to_string(kBytes)};
    if (!secret.empty()) {
      const std::string file = folder_.file("secret-" + std::to_string(owners_));
      std::ofstream(file) << secret;
      chmod(file.c_str(), 0600);
      arguments.push_back("secret=" + file);
    }
    auto started = std::make_unique<Owner>(arguments);
    setenv("BRAID_RUNTIME_DIR", initiators_.c_str(), 1);
    return started;
  }
  Transfer initiator() const {
    Transfer::Options options;
    options.store = server_.url();
    return Transfer::open(options).value();
  }

  /// Once it is found: the store, or the engine, may be silent for longer than it is asked.
  static Transfer::Segment open(Transfer& engine, const std::string& name) {
    Transfer::Segment segment{};
    Status said;
    EXPECT_TRUE(eventually([&] {
      const auto tried = engine.open_segment(name, 10s);
      said = tried.status();
      if (tried.ok()) segment = tried.value();
      return tried.ok();
    })) << said.message();
    return segment;
  }

  const braid::test::OwnFolder folder_;
  const std::string initiators_ = folder_.file("i");
  StoreServer server_{GetParam(), folder_.file("server")};
  int owners_ = 0;
};

INSTANTIATE_TEST_SUITE_P(, TransferStore, testing::Values(StoreKind::kRedis, StoreKind::kEtcd),
                         [](const auto& kind) {
                           return kind.param == StoreKind::kRedis ? "Redis" : "Etcd";
                         });

TEST_P(TransferStore, ANameLeadsToItsEngineAndAKilledOnesIsTakenOver) {
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
  EXPECT_EQ(read(*first, open(engine, "prefill-0")), Cause::kDone);
  EXPECT_EQ(wrong_at({static_cast<std::byte*>(memory.memory), kBytes}, 1), std::nullopt);

  EXPECT_EQ(owner("prefill-0")->name, "error") << "a live engine keeps its name";
  first->stop();
  EXPECT_EQ(owner("prefill-0")->name, "error") << "it may go on";
  first->end(SIGKILL);
  const auto third = owner("prefill-0");
  ASSERT_EQ(third->addresses.size(), 4u) << third->name;
  third->fill(Owner::kRead, 2);
  const auto again = open(engine, "prefill-0");
  EXPECT_EQ(read(*third, again), Cause::kDone);
  EXPECT_EQ(wrong_at({static_cast<std::byte*>(memory.memory), kBytes}, 2), std::nullopt);

  server_.stop();  // whoever is known is still reached
  EXPECT_EQ(read(*third, again), Cause::kDone);
  const auto unknown = engine.open_segment("prefill-0", 5s);
  ASSERT_FALSE(unknown.ok());
  EXPECT_NE(unknown.status().message().find("store"), std::string::npos);
  EXPECT_EQ(Transfer::cause_of(unknown.status()), Cause::kNoStore);
  ASSERT_TRUE(server_.start());  // empty: the engine puts its name there again
  (void)open(engine, "prefill-0");
}

/// Its engine lives, and answers nobody now: all its connections are strangers'.
TEST_P(TransferStore, ALiveEngineBesideManySilentConnectionsKeepsItsName) {
  const auto first = owner("prefill-0");
  ASSERT_EQ(first->addresses.size(), 4u) << first->name;
  const HostAndPort at = parse_name(first->name).value().at;
  std::vector<Descriptor> silent;
  for (size_t i = 0; i < DirectoryServer::kConnectionsMax; ++i)
    silent.push_back(connect_to(at, monotonic_ns() + 10'000'000'000).value());
  EXPECT_EQ(owner("prefill-0")->name, "error");
}

TEST_P(TransferStore, AnEngineOfAnotherSecretKeepsItsName) {
  const auto first = owner("prefill-0", std::string(32, 'a'));
  ASSERT_EQ(first->addresses.size(), 4u) << first->name;
  EXPECT_EQ(owner("prefill-0", std::string(32, 'b'))->name, "error");
}

TEST_P(TransferStore, AStoreThatIsSilentHoldsNobodyUpForLongerThanItsLimit) {
  Transfer engine = initiator();
  server_.freeze();
  EXPECT_TRUE(is_once_within(1500ms, [&] {
    const auto begun = std::chrono::steady_clock::now();
    EXPECT_FALSE(engine.open_segment("prefill-0", 50ms).ok());
    return std::chrono::steady_clock::now() - begun;
  }));
}

/// braid_transfer_close takes up to 1 s for last words, and 0.2 s to tell the peers.
TEST_P(TransferStore, OneThatIsSilentHoldsUpNoEngineThatIsClosed) {
  const milliseconds while_it_is_renewed{kLeaseMs / 3 + 200};
  int engines = 0;
  for (const milliseconds later : {0ms, while_it_is_renewed})
    EXPECT_TRUE(is_once_within(1700ms, [&] {
      Transfer::Options options;
      options.store = server_.url();
      options.name = "prefill-" + std::to_string(++engines);
      std::optional<Transfer> engine = Transfer::open(options).value();
      server_.freeze();
      std::this_thread::sleep_for(later);
      const auto begun = std::chrono::steady_clock::now();
      engine.reset();
      const auto took = std::chrono::steady_clock::now() - begun;
      server_.signal(SIGCONT);
      return took;
    })) << later.count();
}

/// Its own host has no folder for sockets: others may open it, it is no folder, or its path is
/// long.
TEST_P(TransferStore, AHostWhereNoEngineCanHaveANameAsksTheCluster) {
  const auto first = owner("prefill-0");
  ASSERT_EQ(first->addresses.size(), 4u) << first->name;
  Transfer engine = initiator();
  namespace fs = std::filesystem;
  const std::string open_to_all = folder_.file("open"),
                    long_path = folder_.file(std::string(90, 'x'));
  fs::create_directories(open_to_all);
  fs::permissions(open_to_all, fs::perms(0755));
  for (const std::string& folder : {open_to_all, std::string("/dev/null/none"), long_path}) {
    setenv("BRAID_RUNTIME_DIR", folder.c_str(), 1);
    (void)open(engine, "prefill-0");
  }
  setenv("BRAID_RUNTIME_DIR", initiators_.c_str(), 1);
}

TEST_P(TransferStore, OneThatLiesMisdirectsAndAuthorisesNothing) {
  const auto real = owner("decode-0");
  const auto other = owner("decode-1");
  const std::string where = other->name.substr(0, other->name.rfind('/'));
  Transfer engine = initiator();
  for (const std::string& record :
       {where + "/" + std::string(32, '7'), where, std::string("decode-1"),
        std::string("x \x1b[31my"), std::string("braid://host:0")}) {
    const auto store = server_.client();
    ASSERT_TRUE(store->put("decode-0", store->get("decode-0").value(), record).value());
    const auto opened = engine.open_segment("decode-0", 5s);
    ASSERT_FALSE(opened.ok()) << record;
    EXPECT_EQ(Transfer::cause_of(opened.status()), Cause::kNoSegment) << record;
    EXPECT_EQ(opened.status().message().find('\x1b'), std::string::npos) << record;
  }
  EXPECT_EQ(Transfer::cause_of(engine.open_segment("nobody", 5s).status()), Cause::kNoSegment);
  Transfer::Options options;
  options.store = "http://127.0.0.1:" + server_.port();
  options.name = "x";
  EXPECT_FALSE(Transfer::open(options).ok());
}

/// Whoever looked for it there would ask its own host, and take the name for a free one.
TEST(TransferStoreNames, AnEngineThatOtherHostsCannotReachHasNoneInTheirStore) {
  Transfer::Options options;
  options.name = "x";
  options.store = "redis://198.51.100.1:6379";  // nobody's (RFC 5737)
  for (const char* listen : {"", "127.0.0.1:0", "localhost:0"}) {
    options.listen = listen;
    const auto opened = Transfer::open(options);
    ASSERT_FALSE(opened.ok()) << listen;
    EXPECT_NE(opened.status().message().find("cannot reach it"), std::string::npos)
        << opened.status().message();
  }
}

}  // namespace
}  // namespace braid::transfer::test
