#include "transfer/directory/store_url.h"

#include <charconv>
#include <optional>

#include "base/try.h"

namespace braid::transfer {
namespace {

constexpr std::string_view kRedis = "redis://";
constexpr std::string_view kEtcd = "etcd://";
constexpr const char* kForm =
    "Write redis://host:port or etcd://host:port, with a password redis://[USER]:PASSWORD@host:port"
    " or etcd://USER:PASSWORD@host:port";

Status wrong(const std::string& what, const std::string& remedy = kForm) {
  return Status::error("the store's URL " + what, remedy);
}

/// Nothing: two hex digits do not follow a '%'.
std::optional<std::string> decode_percent(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    const std::string_view digits = text.substr(i + 1, 2);
    uint8_t letter = 0;
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), letter, 16);
    if (digits.size() != 2 || read.ptr != digits.data() + 2) return std::nullopt;
    decoded += static_cast<char>(letter);
    i += 2;
  }
  return decoded;
}

Status take_user(std::string_view text, StoreUrl& url) {
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos) return wrong("has no ':PASSWORD' before its '@'");
  const auto user = decode_percent(text.substr(0, colon));
  const auto password = decode_percent(text.substr(colon + 1));
  if (!user || !password)
    return wrong("has a '%' in its user or password that two hex digits do not follow",
                 "Write %25 for '%'");
  if (password->empty()) return wrong("has an empty password before its '@'");
  if (user->empty() && url.kind == StoreKind::kEtcd)
    return wrong("has a password and no user, which etcd wants");
  url.user = *user;
  url.password = *password;
  return {};
}

}  // namespace

Result<StoreUrl> parse_store_url(std::string_view text) {
  StoreUrl url;
  url.kind = text.starts_with(kEtcd) ? StoreKind::kEtcd : StoreKind::kRedis;
  const std::string_view scheme = url.kind == StoreKind::kEtcd ? kEtcd : kRedis;
  if (!text.starts_with(scheme))
    return wrong("begins with neither redis:// nor etcd://, the stores that braid knows");
  text.remove_prefix(scheme.size());
  const size_t sign = text.rfind('@');  // no host has one
  if (sign != std::string_view::npos) {
    BRAID_TRY(take_user(text.substr(0, sign), url));
    text.remove_prefix(sign + 1);
  }
  const Result<HostAndPort> at = parse_host_and_port(text);
  if (!at.ok()) return wrong("does not end with host:port");
  url.at = at.value();
  return url;
}

}  // namespace braid::transfer
