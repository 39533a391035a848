// A Store on etcd, by its JSON gateway (etcd.io/docs/v3.4/dev-guide/api_grpc_gateway): bytes travel
// in base64, numbers of 64 bits as strings. Each record has a lease of its own. Renewing a record
// costs etcd no write to its disk: the lease is kept alive, and the record is read.
#include <crypto++/base64.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "base/try.h"
#include "transfer/directory/http.h"
#include "transfer/directory/store.h"

namespace braid::transfer {
namespace {

using Json = nlohmann::json;

constexpr const char* kPrefix = "braid/segment/";
constexpr const char* kPrefixEnd = "braid/segment0";  // the first key behind all with the prefix
constexpr int kLeaseSeconds = kLeaseMs / 1000;

/// All that comes out of `coder` for `text`.
std::string pass(CryptoPP::Filter&& coder, const std::string& text) {
  coder.Put(reinterpret_cast<const unsigned char*>(text.data()), text.size());
  coder.MessageEnd();
  std::string out(coder.MaxRetrievable(), '\0');
  coder.Get(reinterpret_cast<unsigned char*>(out.data()), out.size());
  return out;
}

std::string to_base64(const std::string& text) {
  return pass(CryptoPP::Base64Encoder(nullptr, false), text);
}

/// Crypto++ passes over what is no base64, so what it read is coded again and compared.
std::optional<std::string> of_base64(const std::string& coded) {
  std::string text = pass(CryptoPP::Base64Decoder(), coded);
  if (to_base64(text) != coded) return std::nullopt;
  return text;
}

/// A member of an object, whatever it is; null: there is none.
const Json* member(const Json* object, const char* name) {
  if (object == nullptr || !object->is_object()) return nullptr;
  const auto found = object->find(name);
  return found == object->end() ? nullptr : &*found;
}

/// Bytes, of which the gateway leaves out empty ones.
std::optional<std::string> bytes_of(const Json* json) {
  if (json == nullptr) return std::string();
  return json->is_string() ? of_base64(json->get_ref<const std::string&>()) : std::nullopt;
}

/// A number of 64 bits, which the gateway writes as a string.
std::optional<int64_t> number(const Json* json) {
  if (json == nullptr) return std::nullopt;
  if (json->is_number_integer()) return json->get<int64_t>();
  if (!json->is_string()) return std::nullopt;
  const auto& text = json->get_ref<const std::string&>();
  int64_t value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_whole = read.ec == std::errc() && read.ptr == text.data() + text.size();
  return is_whole ? std::optional(value) : std::nullopt;
}

class Etcd final : public Store {
 public:
  Etcd(StoreUrl url, std::unique_ptr<Http> http) : url_(std::move(url)), http_(std::move(http)) {}

  Result<std::string> get(const std::string& name, uint64_t end_ns) override {
    begin(end_ns);
    return value_of(name);
  }
  Result<bool> put(const std::string& name, const std::string& before,
                   const std::string& value) override {
    begin();
    const auto known = leases_.find(name);
    if (known != leases_.end() && before == value) {
      BRAID_LET(is_renewed, renew(name, value, known->second));
      if (is_renewed) return true;
    }
    return put_on_new_lease(name, before, value);
  }
  Status remove(const std::string& name, const std::string& value) override {
    begin();
    const Json removal = {{"request_delete_range", {{"key", key_of(name)}}}};
    BRAID_TRY(change_if(name, value, removal).status());
    const auto lease = leases_.extract(name);
    if (lease.empty()) return {};
    return ask("/v3/lease/revoke", {{"ID", std::to_string(lease.mapped())}}).status();
  }
  Result<Records> list(uint64_t end_ns) override {
    constexpr size_t kInPage = 500;
    Records all;
    size_t all_bytes = 0;
    std::string from = kPrefix;
    for (bool is_last = false; !is_last;) {
      begin(end_ns);
      BRAID_LET(page, range({{"key", to_base64(from)},
                             {"range_end", to_base64(kPrefixEnd)},
                             {"limit", kInPage}},
                            kPageBytesMax));
      is_last = page.size() < kInPage;
      if (!is_last) from = kPrefix + page.rbegin()->first + '\0';
      if (!add_page(std::move(page), all, all_bytes))
        return store_failure(url_, "its list is too long");
    }
    return all;
  }

 private:
  static std::string key_of(const std::string& name) { return to_base64(kPrefix + name); }

  /// Begins a call of the interface, which may ask several questions within one limit.
  void begin(uint64_t end_ns = std::numeric_limits<uint64_t>::max()) { end_ = end_of_call(end_ns); }

  Result<std::string> value_of(const std::string& name) {
    BRAID_LET(records, range({{"key", key_of(name)}}, kStoreAnswerBytesMax));
    return records.empty() ? std::string() : std::move(records.begin()->second);
  }

  /// The records of which the question says the keys.
  Result<Records> range(const Json& question, size_t bytes_max) {
    BRAID_LET(answer, ask("/v3/kv/range", question, bytes_max));
    Records records;
    const Json* all = member(&answer, "kvs");
    if (all == nullptr) return records;
    if (!all->is_array()) return what_is_this();
    for (const Json& each : *all) {
      const std::optional<std::string> key = bytes_of(member(&each, "key"));
      std::optional<std::string> value = bytes_of(member(&each, "value"));
      if (!key || !key->starts_with(kPrefix) || !value) return what_is_this();
      records[key->substr(std::string_view(kPrefix).size())] = *std::move(value);
    }
    return records;
  }

  /// False: the lease has run out, or the name is not ours any more.
  Result<bool> renew(const std::string& name, const std::string& value, int64_t lease) {
    BRAID_LET(answer, ask("/v3/lease/keepalive", {{"ID", std::to_string(lease)}}));
    const Json* result = member(&answer, "result");
    if (result == nullptr) return what_is_this();
    const Json* left_s = member(result, "TTL");  // missing: 0
    if (left_s != nullptr && !number(left_s)) return what_is_this();
    if (left_s == nullptr || *number(left_s) <= 0) return false;
    BRAID_LET(kept, value_of(name));
    return kept == value;
  }

  Result<bool> put_on_new_lease(const std::string& name, const std::string& before,
                                const std::string& value) {
    BRAID_LET(answer, ask("/v3/lease/grant", {{"TTL", kLeaseSeconds}}));
    const std::optional<int64_t> lease = number(member(&answer, "ID"));
    if (!lease || *lease == 0) return what_is_this();
    const Json change = {
        {"request_put",
         {{"key", key_of(name)}, {"value", to_base64(value)}, {"lease", std::to_string(*lease)}}}};
    const Result<bool> is_put = change_if(name, before, change);
    if (is_put.ok() && is_put.value())
      leases_[name] = *lease;
    else  // the lease holds no record; it runs out by itself if this fails
      (void)ask("/v3/lease/revoke", {{"ID", std::to_string(*lease)}});
    return is_put;
  }

  /// A transaction: makes the change if the value is `before` (empty: there is none). False: it is
  /// not.
  Result<bool> change_if(const std::string& name, const std::string& before, const Json& change) {
    Json is_so = {{"key", key_of(name)}, {"result", "EQUAL"}};
    if (before.empty()) {
      is_so["target"] = "CREATE";
      is_so["create_revision"] = "0";
    } else {
      is_so["target"] = "VALUE";
      is_so["value"] = to_base64(before);
    }
    BRAID_LET(answer, ask("/v3/kv/txn",
                          {{"compare", Json::array({is_so})}, {"success", Json::array({change})}}));
    const Json* is_done = member(&answer, "succeeded");  // missing: false
    if (is_done == nullptr) return false;
    if (!is_done->is_boolean()) return what_is_this();
    return is_done->get<bool>();
  }

  struct Said {
    Json json;          ///< an object
    std::string error;  ///< empty: there is none
  };

  Result<Json> ask(const char* path, const Json& question,
                   size_t bytes_max = kStoreAnswerBytesMax) {
    for (bool is_again = false;; is_again = true) {
      if (!url_.password.empty() && token_.empty()) BRAID_TRY(authenticate());
      BRAID_LET(said, post(path, question, bytes_max));
      if (said.error.empty()) return std::move(said.json);
      const auto is = [&](const char* words) {
        return said.error.find(words) != std::string::npos;
      };
      // Tokens expire, and end with a restart of etcd or a change of its users.
      if (is("invalid auth token") || is("revision of auth store is old")) {
        token_.clear();
        if (!url_.password.empty() && !is_again) continue;
      }
      if (is("user name is empty")) return store_wants_password(url_);
      if (is("permission denied")) return store_denies(url_, said.error);
      return store_failure(url_, said.error);
    }
  }

  /// Its errors say none of the server's words, which may repeat the password.
  Status authenticate() {
    BRAID_LET(said, post("/v3/auth/authenticate",
                         {{"name", url_.user}, {"password", url_.password}}, kStoreAnswerBytesMax));
    if (said.error.find("authentication failed") != std::string::npos)
      return store_refuses_password(url_, "user or password are wrong");
    if (said.error.find("authentication is not enabled") != std::string::npos)
      return store_refuses_password(url_, "authentication is not enabled there");
    if (!said.error.empty()) return store_failure(url_, "it gives no token");
    const Json* token = member(&said.json, "token");
    if (token == nullptr || !token->is_string()) return what_is_this();
    const auto& text = token->get_ref<const std::string&>();
    const bool is_header = !text.empty() && std::all_of(text.begin(), text.end(), [](char letter) {
      return letter > ' ' && letter <= '~';
    });
    if (!is_header) return what_is_this();
    token_ = text;
    return {};
  }

  Result<Said> post(const char* path, const Json& question, size_t bytes_max) {
    // A password may be any bytes; JSON has UTF-8 alone, and so have etcd's passwords.
    const std::string body = question.dump(-1, ' ', false, Json::error_handler_t::replace);
    const Result<HttpAnswer> answer = http_->post(path, body, token_, bytes_max, end_);
    if (!answer.ok()) return store_failure(url_, answer.status().message());
    const HttpAnswer& got = answer.value();
    Said said{Json::parse(got.body, nullptr, false), {}};
    const Json* error = member(&said.json, "error");
    if (got.status != 200 || error != nullptr)
      said.error = error != nullptr && error->is_string()
                       ? error->get<std::string>()
                       : "HTTP status " + std::to_string(got.status);
    if (said.error.empty() && !said.json.is_object()) return what_is_this();
    return said;
  }
  Status what_is_this() const {
    return store_failure(url_, "its answer is not that of etcd 3.4 or later");
  }

  const StoreUrl url_;
  std::string token_;  // that etcd has given for the password; empty: none yet
  std::unique_ptr<Http> http_;
  std::map<std::string, int64_t> leases_;  // by name
  WaitEnd end_{0};                         // of the current call
};

}  // namespace

Result<std::unique_ptr<Store>> open_etcd(StoreUrl url, Resolver resolver) {
  BRAID_LET(http, open_http(url.at, std::move(resolver)));
  return std::unique_ptr<Store>(std::make_unique<Etcd>(std::move(url), std::move(http)));
}

}  // namespace braid::transfer
