#include "transfer/directory/store.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "base/clock.h"
#include "base/try.h"
#include "transfer/failure.h"

namespace braid::transfer {
namespace {

constexpr std::string_view kRedis = "redis://";
constexpr std::string_view kEtcd = "etcd://";
constexpr size_t kReasonBytesMax = 200;

}  // namespace

Result<HostAndPort> place_of_store(const std::string& url) {
  for (const std::string_view scheme : {kRedis, kEtcd})
    if (url.starts_with(scheme))
      return parse_host_and_port(std::string_view(url).substr(scheme.size()));
  return Status::error("braid knows no store '" + url + "'",
                       "Write redis://host:port or etcd://host:port");
}

Result<std::unique_ptr<Store>> open_store(const std::string& url) {
  BRAID_LET(at, place_of_store(url));
  if (url.starts_with(kRedis)) return open_redis(at);
  return open_etcd(at);
}

WaitEnd Store::end_of_call(uint64_t end_ns) const {
  return {std::min(end_ns, monotonic_after_ns(kStoreLimitMs * 1000)), &end_by_ns_};
}

bool add_page(Records page, Records& list, size_t& list_bytes) {
  for (const auto& [name, value] : page) list_bytes += name.size() + value.size();
  list.merge(page);
  return list_bytes <= kListBytesMax;
}

/// The reason may come from a stranger and goes to terminals, so it is cut and made printable.
Status store_failure(const HostAndPort& at, const std::string& why) {
  std::string reason = why.substr(0, kReasonBytesMax);
  std::replace_if(
      reason.begin(), reason.end(), [](unsigned char letter) { return std::isprint(letter) == 0; },
      ' ');
  return failure(
      Cause::kNoStore,
      "the store at " + at.host + ":" + std::to_string(at.port) + " does not answer: " + reason,
      "Name engines as braid://host:port meanwhile");
}

}  // namespace braid::transfer
