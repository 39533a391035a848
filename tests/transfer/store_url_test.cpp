// URLs of stores, with users and passwords.
#include "transfer/directory/store_url.h"

#include <gtest/gtest.h>

namespace braid::transfer {
namespace {

struct Case {
  const char* text;
  const char* user;
  const char* password;
  const char* place = "10.0.0.1:6379";
};

TEST(StoreUrls, HaveUserAndPasswordInPercentEncoding) {
  const Case cases[] = {
      {"10.0.0.1:6379", "", ""},
      {":secret@10.0.0.1:6379", "", "secret"},
      {"braid:secret@10.0.0.1:6379", "braid", "secret"},
      {"br%41id:s%3acr%40t%25%2F%20@10.0.0.1:6379", "brAid", "s:cr@t%/ "},
      {"braid:s@cr:t@10.0.0.1:6379", "braid", "s@cr:t"},
      {"braid:a//b?c#d@10.0.0.1:6379", "braid", "a//b?c#d"},
      {"braid:secret@[fd00::1]:6379", "braid", "secret", "fd00::1:6379"},
  };
  for (const Case& each : cases) {
    const auto url = parse_store_url(std::string("redis://") + each.text);
    ASSERT_TRUE(url.ok()) << each.text << ": " << url.status().message();
    EXPECT_EQ(url.value().kind, StoreKind::kRedis);
    EXPECT_EQ(url.value().user, each.user) << each.text;
    EXPECT_EQ(url.value().password, each.password) << each.text;
    EXPECT_EQ(url.value().place(), each.place) << each.text;
  }
  const auto etcd = parse_store_url("etcd://braid:%00%ff@10.0.0.1:2379");
  ASSERT_TRUE(etcd.ok()) << etcd.status().message();
  EXPECT_EQ(etcd.value().kind, StoreKind::kEtcd);
  EXPECT_EQ(etcd.value().password, std::string("\0\xff", 2));
}

/// They say what is wrong, and nothing of the text: it may have the password anywhere.
TEST(StoreUrls, ThatAreNoneAreRefusedWithoutTheirPassword) {
  const std::pair<const char*, const char*> wrong[] = {
      {"", "begins with neither"},
      {"http://127.0.0.1:2379", "begins with neither"},
      {"127.0.0.1:2379", "begins with neither"},
      {"rediss://u:hunter2@127.0.0.1:6379", "begins with neither"},
      {"u:hunter2@127.0.0.1:6379", "begins with neither"},
      {"etcd://", "host:port"},
      {"etcd://host", "host:port"},
      {"redis://host:x", "host:port"},
      {"etcd://host:99999", "host:port"},
      {"redis://:hunter2", "host:port"},
      {"redis://u:hunter2@", "host:port"},
      {"redis://u:hunter2@host", "host:port"},
      {"redis://u:hunter2@:6379", "host:port"},
      {"redis://u:hunter2@h:6379/0", "host:port"},
      {"redis://hunter2@h:6379", "no ':PASSWORD'"},
      {"redis://@h:6379", "no ':PASSWORD'"},
      {"redis://:@h:6379", "empty password"},
      {"redis://u:@h:6379", "empty password"},
      {"redis://u:hunter2%@h:6379", "'%'"},
      {"redis://u:hunter2%4@h:6379", "'%'"},
      {"redis://u:hunter2%4g@h:6379", "'%'"},
      {"redis://u:hunter2%-1@h:6379", "'%'"},
      {"redis://u%zz:hunter2@h:6379", "'%'"},
      {"etcd://:hunter2@h:2379", "no user"},
  };
  for (const auto& [text, why] : wrong) {
    const auto url = parse_store_url(text);
    ASSERT_FALSE(url.ok()) << text;
    EXPECT_NE(url.status().message().find(why), std::string::npos)
        << text << ": " << url.status().message();
    EXPECT_EQ(url.status().message().find("hunter2"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace braid::transfer
