// Stores that want a password, in real servers; and that no text has it.
#include <gtest/gtest.h>

#include "base/clock.h"
#include "braid/transfer.h"
#include "support/own_folder.h"
#include "transfer/directory/http.h"
#include "transfer/failure.h"
#include "transfer/store_server.h"

namespace braid::transfer::test {
namespace {

/// The password of every server here, and as it stands in a URL.
constexpr const char* kPassword = "hunter2@: /%";
constexpr const char* kEncoded = "hunter2%40%3A%20%2f%25";

void expect_refused(const Status& said, const std::string& what) {
  ASSERT_FALSE(said.ok()) << what;
  EXPECT_EQ(cause_of(said), Cause::kStoreRefuses) << said.message();
  EXPECT_NE(said.message().find(what), std::string::npos) << said.message();
  EXPECT_NE(said.message().find("the store at 127.0.0.1:"), std::string::npos) << said.message();
  EXPECT_EQ(said.message().find("does not answer"), std::string::npos) << said.message();
  EXPECT_EQ(said.message().find("hunter"), std::string::npos) << said.message();
}

/// Every call says the same.
void expect_all_refused(const std::string& url, const std::string& what) {
  const auto store = open_store(url).value();
  for (int i = 0; i < 2; ++i) {
    expect_refused(store->get("a").status(), what);
    expect_refused(store->put("a", "", "1").status(), what);
    expect_refused(store->remove("a", "1"), what);
    expect_refused(store->list(monotonic_after_ns(5'000'000)).status(), what);
  }
}

void expect_served(const std::string& url) {
  const auto store = open_store(url).value();
  const auto put = store->put("a", "", "1");
  ASSERT_TRUE(put.ok()) << put.status().message();
  EXPECT_EQ(store->get("a").value(), "1");
  EXPECT_EQ(store->list(monotonic_after_ns(5'000'000)).value().at("a"), "1");
  EXPECT_TRUE(store->put("a", "1", "1").value());
  EXPECT_TRUE(store->remove("a", "1").ok());
}

/// An engine that has a name there: neither its reports nor what it says when it is refused.
void expect_engines_are_silent(const StoreServer& server, const std::string& login,
                               const std::string& wrong_login) {
  Transfer::Options options;
  options.name = "prefill-0";
  options.store = server.url(login);
  auto opened = Transfer::open(options);
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  for (const Transfer::Form form : {Transfer::Form::kText, Transfer::Form::kJson})
    EXPECT_EQ(opened.value().report(form).value().find("hunter"), std::string::npos);
  const auto unknown = opened.value().open_segment("nobody", std::chrono::seconds(5));
  EXPECT_EQ(Transfer::cause_of(unknown.status()), Transfer::Cause::kNoSegment);
  EXPECT_EQ(unknown.status().message().find("hunter"), std::string::npos);
  options.name = "prefill-1";
  options.store = server.url(wrong_login);
  const auto refused = Transfer::open(options);
  expect_refused(refused.status(), "refuses the password");
  EXPECT_EQ(Transfer::cause_of(refused.status()), Transfer::Cause::kStoreRefuses);
}

class StorePasswords : public testing::Test {
 protected:
  void SetUp() override { setenv("BRAID_RUNTIME_DIR", folder_.file("engines").c_str(), 1); }
  void TearDown() override {
    for (StoreServer* each : {redis_.get(), etcd_.get()})
      if (each != nullptr) each->stop();
  }

  /// Null: it is not installed, or does not start.
  StoreServer* start_redis(std::vector<std::string> more, std::string login) {
    redis_ = std::make_unique<StoreServer>(StoreKind::kRedis, folder_.file("redis"),
                                           std::move(more), std::move(login));
    return redis_->is_installed() && redis_->start() ? redis_.get() : nullptr;
  }

  /// With authentication, and users `braid`, who may what docs/transfer.md lists, and `none`, who
  /// may nothing. Null as above.
  StoreServer* start_etcd() {
    etcd_ = std::make_unique<StoreServer>(StoreKind::kEtcd, folder_.file("etcd"));
    if (!etcd_->is_installed() || !etcd_->start()) return nullptr;
    for (const auto& [path, question] : std::vector<std::pair<std::string, std::string>>{
             {"role/add", R"({"name":"root"})"},
             {"role/add", R"({"name":"names"})"},
             {"role/grant", R"({"name":"names","perm":{"permType":"READWRITE",)"
                            R"("key":"YnJhaWQvc2VnbWVudC8=","range_end":"YnJhaWQvc2VnbWVudDA="}})"},
             {"user/add", user("root")},
             {"user/add", user("braid")},
             {"user/add", user("none")},
             {"user/grant", R"({"user":"root","role":"root"})"},
             {"user/grant", R"({"user":"braid","role":"names"})"},
             {"enable", "{}"}})
      EXPECT_NE(administer(path, question).find("header"), std::string::npos) << path;
    return etcd_.get();
  }
  static std::string user(const std::string& name) {
    return R"({"name":")" + name + R"(","password":")" + kPassword + R"("})";
  }
  std::string administer(const std::string& path, const std::string& question,
                         const std::string& token = {}) {
    const HostAndPort at{"127.0.0.1", static_cast<uint16_t>(std::stoi(etcd_->port()))};
    return open_http(at)
        .value()
        ->post("/v3/auth/" + path, question, token, 4096, monotonic_after_ns(10'000'000))
        .value()
        .body;
  }
  /// Ends the tokens of `braid`, as their expiry does.
  void end_tokens() {
    const std::string root = administer("authenticate", user("root"));
    const std::string begin = "\"token\":\"";
    const size_t at = root.find(begin) + begin.size();
    const std::string token = root.substr(at, root.find('"', at) - at);
    EXPECT_NE(administer("user/changepw", user("braid"), token).find("header"), std::string::npos);
  }

  const braid::test::OwnFolder folder_;
  std::unique_ptr<StoreServer> redis_, etcd_;
};

TEST_F(StorePasswords, OfTheDefaultUserOfRedis) {
  StoreServer* redis = start_redis({"--requirepass", kPassword}, std::string(":") + kEncoded);
  if (redis == nullptr) GTEST_SKIP() << "no redis-server";
  expect_served(redis->url());
  expect_served(redis->url(std::string("default:") + kEncoded));
  expect_served(redis->url(":hunter2@: /%25"));
  expect_all_refused(redis->url(""), "wants a password");
  expect_all_refused(redis->url(":hunter3"), "refuses the password");
  expect_all_refused(redis->url(std::string("nobody:") + kEncoded), "refuses the password");
  expect_engines_are_silent(*redis, std::string(":") + kEncoded, "hunter:hunter3");

  const auto store = redis->client();
  EXPECT_TRUE(store->put("b", "", "1").value());
  redis->stop();
  const auto away = store->get("b");
  EXPECT_EQ(cause_of(away.status()), Cause::kNoStore);
  EXPECT_EQ(away.status().message().find("hunter"), std::string::npos);
  ASSERT_TRUE(redis->start());
  EXPECT_TRUE(store->put("b", "", "1").value()) << "a new connection tells the password again";
}

/// `braid` has the rights that docs/transfer.md lists; the others lack some.
TEST_F(StorePasswords, OfUsersOfRedisWithTheirRights) {
  const std::string password = std::string(">") + kPassword, ours = "~braid:segment:*";
  StoreServer* redis =
      start_redis({"--user", "braid", "on",     password,  ours, "+get",   "+set",      "+del",
                   "+scan",  "+eval", "--user", "scripts", "on", password, ours,        "+get",
                   "+eval",  "+scan", "--user", "reads",   "on", password, ours,        "+set",
                   "+eval",  "+scan", "--user", "others",  "on", password, "~others:*", "+@all",
                   "--user", "off",   "off",    password,  ours, "+@all"},
                  std::string("braid:") + kEncoded);
  if (redis == nullptr) GTEST_SKIP() << "no redis-server";
  const auto url_of = [&](const char* user) {
    return redis->url(user + (":" + std::string(kEncoded)));
  };
  expect_served(redis->url());
  expect_engines_are_silent(*redis, std::string("braid:") + kEncoded, "braid:hunter3");
  expect_all_refused(url_of("off"), "refuses the password");
  expect_all_refused(url_of("others"), "denies");
  const auto put = [](Store& store) { return store.put("a", "", "1").status(); };
  ASSERT_TRUE(put(*redis->client()).ok());
  const auto scripts = open_store(url_of("scripts")).value(),
             reads = open_store(url_of("reads")).value();
  EXPECT_EQ(scripts->get("a").value(), "1");
  expect_refused(scripts->put("a", "1", "2").status(), "denies");
  EXPECT_EQ(scripts->get("a").value(), "1") << "it goes on with what it may";
  expect_refused(reads->get("a").status(), "denies");
  expect_refused(reads->list(monotonic_after_ns(5'000'000)).status(), "denies");
}

TEST_F(StorePasswords, ForARedisThatHasNoneAreRefused) {
  StoreServer* redis = start_redis({}, "");
  if (redis == nullptr) GTEST_SKIP() << "no redis-server";
  expect_all_refused(redis->url(":hunter2"), "refuses the password");
  expect_all_refused(redis->url("hunter:hunter2"), "refuses the password");
}

TEST_F(StorePasswords, OfUsersOfEtcdWithTheirRights) {
  StoreServer* etcd = start_etcd();
  if (etcd == nullptr) GTEST_SKIP() << "no etcd";
  const std::string encoded = kEncoded;
  expect_served(etcd->url("braid:" + encoded));
  expect_engines_are_silent(*etcd, "braid:" + encoded, "braid:hunter3");
  for (const char* wrong : {"braid:hunter3", "nobody:hunter3", "braid:hunter%ff"})
    expect_all_refused(etcd->url(wrong), "refuses the password");
  for (const auto& [login, what] : std::vector<std::pair<std::string, std::string>>{
           {"", "wants a password"}, {"none:" + encoded, "denies"}}) {
    const auto store = open_store(etcd->url(login)).value();
    expect_refused(store->get("a").status(), what);
    expect_refused(store->put("a", "", "1").status(), what);
    expect_refused(store->list(monotonic_after_ns(5'000'000)).status(), what);
  }
  const auto store = open_store(etcd->url("braid:" + encoded)).value();
  ASSERT_TRUE(store->put("b", "", "1").value());
  end_tokens();
  EXPECT_EQ(store->get("b").value(), "1") << "it asks for another token";
  end_tokens();
  EXPECT_TRUE(store->put("c", "", "1").value());
  end_tokens();
  EXPECT_EQ(store->list(monotonic_after_ns(5'000'000)).value().at("c"), "1");
}

TEST_F(StorePasswords, ForAnEtcdWithoutAuthenticationAreRefused) {
  StoreServer etcd(StoreKind::kEtcd, folder_.file("open"));
  if (!etcd.is_installed() || !etcd.start()) GTEST_SKIP() << "no etcd";
  expect_all_refused(etcd.url("braid:hunter2"), "refuses the password");
}

/// As a Redis does whose AUTH has been renamed, or a proxy that has none.
TEST(StorePasswordLies, ThatRepeatThePasswordAreNotShown) {
  for (const char* said : {"-ERR unknown command 'AUTH', with args beginning with: 'hunter2'\r\n",
                           "-WRONGPASS hunter2\r\n", "-DENIED hunter2\r\n", "-NOPERM hunter2\r\n",
                           "-ERR max number of clients hunter2\r\n", "$7\r\nhunter2\r\n"}) {
    const Liar liar(said);
    const auto got = open_store("redis://:hunter2@127.0.0.1:" + liar.port()).value()->get("a");
    ASSERT_FALSE(got.ok()) << said;
    EXPECT_EQ(got.status().message().find("hunter2"), std::string::npos) << got.status().message();
  }
}

TEST(StorePasswordLies, OfEtcdAreErrors) {
  const auto http = [](const std::string& body, const char* head) {
    return std::string(head) + "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
           body;
  };
  const char* ok = "HTTP/1.1 200 OK";
  const char* bad = "HTTP/1.1 400 Bad Request";
  for (const std::string& said :
       {http(R"({"error":"hunter2"})", bad), http("hunter2", bad),
        http(R"({"token":"a\r\nb: hunter2"})", ok), http(R"({"token":7})", ok),
        http(R"({"token":""})", ok), http("{}", ok),
        http(R"({"error":"invalid auth token hunter2"})", bad)}) {
    const Liar liar(said);
    const auto got = open_store("etcd://braid:hunter2@127.0.0.1:" + liar.port()).value()->get("a");
    ASSERT_FALSE(got.ok()) << said;
    EXPECT_EQ(got.status().message().find("hunter2"), std::string::npos) << got.status().message();
  }
}

}  // namespace
}  // namespace braid::transfer::test
