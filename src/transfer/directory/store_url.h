// The URL of a store of names, which may have a password:
//
//   redis://10.0.0.1:6379
//   redis://:PASSWORD@10.0.0.1:6379         the password of the default user (requirepass)
//   redis://USER:PASSWORD@10.0.0.1:6379     a user of Redis' access list
//   etcd://USER:PASSWORD@10.0.0.1:2379
//
// User and password are percent-encoded; '@' and ':' in the password need not be. No text shows the
// URL: not errors either, since one that is wrong may have the password anywhere. They say `place`.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "transfer/directory/names.h"

namespace braid::transfer {

enum class StoreKind { kRedis, kEtcd };

struct StoreUrl {
  StoreKind kind = StoreKind::kRedis;
  HostAndPort at;
  std::string user = {};      ///< empty: the default user
  std::string password = {};  ///< empty: there is none

  /// For people: "10.0.0.1:6379". Without user and password.
  std::string place() const { return at.host + ":" + std::to_string(at.port); }
};

Result<StoreUrl> parse_store_url(std::string_view text);

}  // namespace braid::transfer
