// Where names of a cluster are kept: redis://host:port or etcd://host:port. A record says where a
// name's engine is, and lives as long as its engine renews it. It carries no key and no right:
// whoever is found there is asked, and the incarnation in the record must be its own, so a store
// that lies can misdirect and not authorise.
//
// Calls block for kStoreLimitMs at most. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "transfer/directory/names.h"

namespace braid::transfer {

inline constexpr const char* kStoreVariable = "BRAID_TRANSFER_STORE";
inline constexpr int kStoreLimitMs = 2000;
inline constexpr int kLeaseMs = 9000;
/// Of one answer. Records are names of engines, so whoever answers more is no store of ours.
inline constexpr size_t kStoreAnswerBytesMax = 64 << 10;

class Store {
 public:
  virtual ~Store() = default;
  /// What is kept under the name; empty: nothing.
  virtual Result<std::string> get(const std::string& name) = 0;
  /// Keeps `value` for kLeaseMs if `before` is kept now (empty: if nothing is). False: something
  /// else is.
  virtual Result<bool> put(const std::string& name, const std::string& before,
                           const std::string& value) = 0;
  /// If `value` is kept.
  virtual Status remove(const std::string& name, const std::string& value) = 0;
};

/// "redis://10.0.0.1:6379", "etcd://10.0.0.1:2379". It connects with the first call, and again
/// after a failure.
Result<std::unique_ptr<Store>> open_store(const std::string& url);

std::unique_ptr<Store> open_redis(const HostAndPort& at);
/// By etcd's JSON gateway, of version 3.4 and later. An error: libcurl is not here.
Result<std::unique_ptr<Store>> open_etcd(const HostAndPort& at);

/// "the store at 10.0.0.1:6379 does not answer: WHY".
Status store_failure(const HostAndPort& at, const std::string& why);

}  // namespace braid::transfer
