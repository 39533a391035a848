#include "transfer/directory/store.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "base/clock.h"
#include "base/try.h"
#include "transfer/failure.h"

namespace braid::transfer {
namespace {

constexpr size_t kReasonBytesMax = 200;

/// A reason may come from a stranger and goes to terminals, so it is cut and made printable.
std::string at_and_reason(const StoreUrl& url, const char* what, const std::string& why) {
  std::string reason = why.substr(0, kReasonBytesMax);
  std::replace_if(
      reason.begin(), reason.end(), [](unsigned char letter) { return std::isprint(letter) == 0; },
      ' ');
  return "the store at " + url.place() + " " + what + ": " + reason;
}

}  // namespace

Result<std::unique_ptr<Store>> open_store(const std::string& url) {
  BRAID_LET(parsed, parse_store_url(url));
  if (parsed.kind == StoreKind::kRedis) return open_redis(std::move(parsed));
  return open_etcd(std::move(parsed));
}

WaitEnd Store::end_of_call(uint64_t end_ns) const {
  return {std::min(end_ns, monotonic_after_ns(kStoreLimitMs * 1000)), &end_by_ns_};
}

bool add_page(Records page, Records& list, size_t& list_bytes) {
  for (const auto& [name, value] : page) list_bytes += name.size() + value.size();
  list.merge(page);
  return list_bytes <= kListBytesMax;
}

Status store_failure(const StoreUrl& url, const std::string& why) {
  return failure(Cause::kNoStore, at_and_reason(url, "does not answer", why),
                 "Name engines as braid://host:port meanwhile");
}

Status store_wants_password(const StoreUrl& url) {
  const char* const form = url.kind == StoreKind::kRedis ? "redis://[USER]:PASSWORD@host:port"
                                                         : "etcd://USER:PASSWORD@host:port";
  return failure(Cause::kStoreRefuses, "the store at " + url.place() + " wants a password",
                 std::string("Write it in the URL: ") + kStoreVariable + "=" + form);
}

Status store_refuses_password(const StoreUrl& url, const std::string& why) {
  return failure(Cause::kStoreRefuses, at_and_reason(url, "refuses the password", why),
                 std::string("Correct user and password in the store's URL (") + kStoreVariable +
                     "). There, '%' of a password is %25");
}

Status store_denies(const StoreUrl& url, const std::string& why) {
  return failure(Cause::kStoreRefuses, at_and_reason(url, "denies what braid asks", why),
                 "Give its user the rights that docs/transfer.md lists");
}

}  // namespace braid::transfer
