// A store that keeps the names of a cluster, in Redis or etcd (store_url.h). A record says where a
// name's engine is, and lives as long as the engine renews it. It carries no key and no
// right: the process that is found there is asked, and its incarnation must be the one in the
// record. So a store that lies can misdirect but not authorise.
//
// Calls block for kStoreLimitMs at most, or until the earlier limit that they are given. One thread
// at a time, but any thread may call `end_by`.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>

#include "base/status.h"
#include "transfer/directory/host_look_up.h"
#include "transfer/directory/store_url.h"
#include "transfer/directory/wait_end.h"

namespace braid::transfer {

inline constexpr const char* kStoreVariable = "BRAID_TRANSFER_STORE";
inline constexpr int kStoreLimitMs = 2000;
inline constexpr int kLeaseMs = 9000;
/// The limit of one answer. Records are names of engines, so a longer answer does not come from a
/// store of ours.
inline constexpr size_t kStoreAnswerBytesMax = 64 << 10;
/// The same of one page of a list, and of a whole list.
inline constexpr size_t kPageBytesMax = 1 << 20;
inline constexpr size_t kListBytesMax = 16 << 20;

/// Values by name.
using Records = std::map<std::string, std::string>;

class Store {
 public:
  virtual ~Store() = default;
  /// The value that is kept under the name; empty: none. `end_ns` of CLOCK_MONOTONIC.
  virtual Result<std::string> get(const std::string& name, uint64_t end_ns) = 0;
  Result<std::string> get(const std::string& name) {
    return get(name, std::numeric_limits<uint64_t>::max());
  }
  /// Keeps `value` for kLeaseMs if the value is `before` now (empty: if there is none). False:
  /// there is another value.
  virtual Result<bool> put(const std::string& name, const std::string& before,
                           const std::string& value) = 0;
  /// Removes the name if its value is `value`.
  virtual Status remove(const std::string& name, const std::string& value) = 0;
  /// All records. Blocks until `end_ns` at most: it asks for one page after the other.
  virtual Result<Records> list(uint64_t end_ns) = 0;

  /// The call that is under way, and later ones, block until then at most.
  void end_by(uint64_t end_ns) { end_by_ns_ = end_ns; }

 protected:
  /// The end of a call that begins now.
  WaitEnd end_of_call(uint64_t end_ns) const;

 private:
  std::atomic<uint64_t> end_by_ns_{std::numeric_limits<uint64_t>::max()};
};

/// The store connects at the first call, and again after a failure. An error: it is no such URL, or
/// the store's library is not here.
Result<std::unique_ptr<Store>> open_store(const std::string& url);

std::unique_ptr<Store> open_redis(StoreUrl url, Resolver resolver = look_up_host);
/// Uses etcd's JSON gateway, of version 3.4 or later. An error: libcurl is not here.
Result<std::unique_ptr<Store>> open_etcd(StoreUrl url, Resolver resolver = look_up_host);

/// kNoStore: "the store at 10.0.0.1:6379 does not answer: WHY".
Status store_failure(const StoreUrl& url, const std::string& why);
/// kStoreRefuses: it wants a password, and has got none.
Status store_wants_password(const StoreUrl& url);
/// kStoreRefuses: it does not take the password. `why` are words of ours: what a server says to a
/// password may repeat it.
Status store_refuses_password(const StoreUrl& url, const std::string& why);
/// kStoreRefuses: the user may not do what was asked.
Status store_denies(const StoreUrl& url, const std::string& why);

/// Adds a page to a list. False: the list is longer than kListBytesMax.
bool add_page(Records page, Records& list, size_t& list_bytes);

}  // namespace braid::transfer
