// What every store does, by the real servers; and what becomes of servers that are none.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <optional>

#include "base/clock.h"
#include "transfer/directory/lease.h"
#include "transfer/store_server.h"

namespace braid::transfer::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

class StoreContract : public testing::TestWithParam<StoreKind> {
 protected:
  void SetUp() override {
    if (!server_.is_installed()) GTEST_SKIP() << server_.program() << " is not installed";
    ASSERT_TRUE(server_.start()) << server_.program() << " does not start";
    store_ = server_.client();
  }

  StoreServer server_{GetParam(),
                      testing::TempDir() + "/braid-contract-" + std::to_string(getpid())};
  std::unique_ptr<Store> store_;
};

INSTANTIATE_TEST_SUITE_P(, StoreContract, testing::Values(StoreKind::kRedis, StoreKind::kEtcd),
                         [](const auto& kind) {
                           return kind.param == StoreKind::kRedis ? "Redis" : "Etcd";
                         });

TEST_P(StoreContract, WhatIsPutIsThere) {
  EXPECT_EQ(store_->get("a").value(), "");
  EXPECT_TRUE(store_->put("a", "", "braid://10.0.0.1:4750/7").value());
  EXPECT_EQ(store_->get("a").value(), "braid://10.0.0.1:4750/7");
  EXPECT_EQ(store_->get("A").value(), "");
  EXPECT_TRUE(store_->put("b.c-d_e", "", "x").value());
  EXPECT_EQ(server_.client()->get("b.c-d_e").value(), "x") << "others see it too";
}

TEST_P(StoreContract, OnlyWhoKnowsWhatIsThereReplacesIt) {
  EXPECT_FALSE(store_->put("a", "what is not there", "1").value());
  EXPECT_TRUE(store_->put("a", "", "1").value());
  EXPECT_FALSE(store_->put("a", "", "2").value());
  EXPECT_FALSE(store_->put("a", "0", "2").value());
  EXPECT_EQ(store_->get("a").value(), "1");
  const auto other = server_.client();
  EXPECT_TRUE(other->put("a", "1", "2").value()) << "whose engine was found dead";
  EXPECT_EQ(store_->get("a").value(), "2");
  EXPECT_FALSE(store_->put("a", "1", "1").value()) << "it is not renewed: it is another's now";
  EXPECT_FALSE(store_->put("a", "", "1").value());
  EXPECT_EQ(other->get("a").value(), "2");
}

TEST_P(StoreContract, OnlyWhatIsKeptIsRemoved) {
  EXPECT_TRUE(store_->put("a", "", "1").value());
  EXPECT_TRUE(server_.client()->remove("a", "2").ok());
  EXPECT_EQ(store_->get("a").value(), "1");
  EXPECT_TRUE(store_->remove("a", "1").ok());
  EXPECT_EQ(store_->get("a").value(), "");
  EXPECT_TRUE(store_->remove("a", "1").ok());
  EXPECT_TRUE(store_->put("a", "", "1").value());
  EXPECT_TRUE(server_.client()->put("a", "1", "2").value());
  EXPECT_TRUE(store_->remove("a", "1").ok());
  EXPECT_EQ(store_->get("a").value(), "2") << "what another has put is left alone";
}

TEST_P(StoreContract, WhatIsNotRenewedRunsOutAndWhatIsRenewedStays) {
  const auto put_at = steady_clock::now();
  ASSERT_TRUE(store_->put("dead", "", "1").value());
  auto held = Lease::take(server_.client(), "live", "2", [](const std::string&) { return true; });
  ASSERT_TRUE(held.ok()) << held.status().message();
  std::this_thread::sleep_for(milliseconds(kLeaseMs / 2));
  const std::string dead = store_->get("dead").value();
  if (steady_clock::now() - put_at < milliseconds(kLeaseMs)) {
    EXPECT_EQ(dead, "1");
  }
  EXPECT_TRUE(eventually([&] {
    const auto got = store_->get("dead");
    return got.ok() && got.value().empty();
  }));
  std::this_thread::sleep_for(milliseconds(kLeaseMs / 3));
  EXPECT_EQ(store_->get("live").value(), "2");
  held.value().reset();
  EXPECT_EQ(store_->get("live").value(), "") << "given back";
}

/// More than a page of any store has, and only those that live.
TEST_P(StoreContract, AllNamesThatLiveAreListed) {
  const int kNames = GetParam() == StoreKind::kRedis ? 1200 : 600;  // pages have about 1000, 500
  Records wanted;
  for (int i = 0; i < kNames; ++i)
    wanted["n" + std::to_string(i)] = "braid://10.0.0.1:" + std::to_string(i) + "/7";
  const auto ahead_ns = [] { return monotonic_after_ns(10'000'000); };
  EXPECT_TRUE(store_->remove("start", "up").ok());
  EXPECT_EQ(store_->list(ahead_ns()).value(), Records());
  const auto put_all = [&] {
    std::vector<std::thread> threads;
    for (int part = 0; part < 8; ++part)
      threads.emplace_back([&, part] {
        const auto client = server_.client();
        for (int i = part; i < kNames; i += 8) {
          const std::string name = "n" + std::to_string(i);
          EXPECT_TRUE(client->put(name, "", wanted.at(name)).ok());
        }
      });
    for (std::thread& thread : threads) thread.join();
  };
  bool have_lived = false;  // on a busy machine the first may run out before all are listed
  Records listed;
  for (int turn = 0; turn < 5 && !have_lived; ++turn) {
    const auto begun = steady_clock::now();
    put_all();
    listed = store_->list(ahead_ns()).value();
    have_lived = steady_clock::now() - begun < milliseconds(kLeaseMs);
    EXPECT_TRUE(eventually([&] {
      const auto left = store_->list(ahead_ns());
      return left.ok() && left.value().empty();
    }));
  }
  if (!have_lived) GTEST_SKIP() << "the store is too slow here to hold them all within a lease";
  EXPECT_EQ(listed, wanted);
}

TEST_P(StoreContract, AStoreThatIsAwayIsAnErrorInTimeAndIsFoundAgain) {
  ASSERT_TRUE(store_->put("a", "", "1").value());
  server_.freeze();
  EXPECT_FALSE(store_->get("a").ok()) << "it returns, though there is no answer";
  server_.signal(SIGCONT);
  server_.stop();
  EXPECT_FALSE(store_->put("a", "1", "1").ok());
  const auto refused = store_->get("a");
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("127.0.0.1:" + server_.port()), std::string::npos)
      << refused.status().message();
  ASSERT_TRUE(server_.start());
  EXPECT_FALSE(store_->put("a", "1", "1").value()) << "it began anew, and nothing is there";
  EXPECT_TRUE(store_->put("a", "", "1").value());
  EXPECT_EQ(store_->get("a").value(), "1");
}

TEST_P(StoreContract, TwoWhoTakeANameAtOnceDoNotBothHaveIt) {
  for (int round = 0; round < 10; ++round) {
    const std::string name = "n" + std::to_string(round);
    std::atomic<int> taken = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&, i] {
        const auto put = server_.client()->put(name, "", std::to_string(i));
        EXPECT_TRUE(put.ok()) << put.status().message();
        if (put.ok() && put.value()) ++taken;
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(taken, 1) << name;
  }
}

// ---- Servers that are none ----

std::string http(const std::string& body, const std::string& head = "HTTP/1.1 200 OK") {
  return head + "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

struct Lie {
  const char* what;
  std::string answer;
  std::string without_end = {};
};

/// Every call must end with an error: also of one who goes on for ever.
void expect_refused(const std::string& scheme, const std::vector<Lie>& lies) {
  for (const Lie& lie : lies) {
    const Liar liar(lie.answer, lie.without_end);
    const auto store = open_store(scheme + "127.0.0.1:" + liar.port()).value();
    const auto got = store->get("a");
    EXPECT_FALSE(got.ok()) << scheme << ": " << lie.what;
    EXPECT_FALSE(store->put("a", "", "1").ok()) << scheme << ": " << lie.what;
    EXPECT_FALSE(store->list(monotonic_after_ns(500'000)).ok()) << scheme << ": " << lie.what;
    if (got.ok()) continue;
    const std::string why = got.status().message();
    EXPECT_NE(why.find("the store at 127.0.0.1"), std::string::npos) << why;
    EXPECT_LT(why.size(), 400u) << "no stranger's text without limit";
    EXPECT_EQ(why.find('\x1b'), std::string::npos) << why;
  }
}

TEST(StoreLies, OfEtcdAreErrors) {
  const std::string key = R"({"kvs":[{"key":"YQ==","value":)";
  expect_refused(
      "etcd://",
      {{"nothing", ""},
       {"no HTTP", "SSH-2.0-OpenSSH_9.2\r\n"},
       {"cut off", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"kvs\":[{"},
       {"JSON that is cut off", http(R"({"kvs":[{"key":"YQ==","val)")},
       {"no JSON", http("hello")},
       {"a list", http("[1,2,3]")},
       {"a number", http("7")},
       {"records that are none", http(R"({"kvs":7,"succeeded":7,"ID":"x"})")},
       {"a value that is a number", http(key + "7}]}")},
       {"a value that is no base64", http(key + R"("***"}]})")},
       {"brackets without end", http(std::string(60000, '['))},
       {"too long", http(std::string(1 << 20, ' '))},
       {"without end", "HTTP/1.1 200 OK\r\n\r\n", std::string(4096, ' ')},
       {"slow", "HTTP/1.1 200 OK\r\n\r\n", " "},
       {"headers without end", "HTTP/1.1 200 OK\r\n", "X: y\r\n"},
       {"an error", http(R"({"error":"\u001b[31mno leader","code":14})", "HTTP/1.1 503 No")},
       {"an error of another kind", http(R"({"error":{"x":1}})")},
       {"elsewhere", http("{}", "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/")}});
}

TEST(StoreLies, OfRedisAreErrors) {
  expect_refused("redis://", {{"nothing", ""},
                              {"another protocol", "HTTP/1.1 400 Bad Request\r\n\r\n"},
                              {"cut off", "$100\r\nbraid://"},
                              {"a list", "*2\r\n$1\r\na\r\n$1\r\nb\r\n"},
                              {"a status", "+OK\r\n"},
                              {"too long", "$400000000\r\n", std::string(4096, 'x')},
                              {"slow", "$1000\r\n", "x"},
                              {"a long list", "*1000000\r\n", ":1\r\n:1\r\n:1\r\n:1\r\n"},
                              {"a set", "~2\r\n:1\r\n:1\r\n"},
                              {"an error", "-LOADING \x1b[31m" + std::string(5000, 'x') + "\r\n"}});
}

/// Each page says that there is another one.
TEST(StoreLies, AListWithoutEndIsAnErrorInTime) {
  std::string page = "1";
  for (int i = 0; i < 400; ++i) page += "\nn" + std::to_string(i) + "\n" + std::string(1000, 'x');
  const Liar liar("", "$" + std::to_string(page.size()) + "\r\n" + page + "\r\n");
  const auto store = open_store("redis://127.0.0.1:" + liar.port()).value();
  const std::string why = store->list(monotonic_after_ns(20'000'000)).status().message();
  EXPECT_NE(why.find("its list is too long"), std::string::npos) << why;
  EXPECT_FALSE(store->list(monotonic_after_ns(1000)).ok()) << "there is no time";
}

/// Whose end never comes, or which needs more memory than there is.
TEST(StoreLies, AListTakesNoMemory) {
  const auto used_bytes = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss << 10;
  };
  const auto before = used_bytes();
  for (const char* head : {"*20000000\r\n", "*1\r\n*2000000000\r\n"}) {
    std::string numbers;
    for (int i = 0; i < 10'000; ++i) numbers += ":1\r\n";
    const Liar liar(head, numbers);
    EXPECT_FALSE(open_store("redis://127.0.0.1:" + liar.port()).value()->get("a").ok());
  }
  EXPECT_LT(used_bytes() - before, 16 << 20);
}

}  // namespace
}  // namespace braid::transfer::test
