#include "transfer/directory/http.h"

#include <curl/curl.h>
#include <dlfcn.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/try.h"

namespace braid::transfer {
namespace {

struct Library {
  decltype(&::curl_global_init) global_init = nullptr;
  decltype(&::curl_easy_init) init = nullptr;
  decltype(&::curl_easy_setopt) setopt = nullptr;
  decltype(&::curl_multi_init) multi_init = nullptr;
  decltype(&::curl_multi_add_handle) add = nullptr;
  decltype(&::curl_multi_remove_handle) remove = nullptr;
  decltype(&::curl_multi_perform) perform = nullptr;
  decltype(&::curl_multi_poll) poll = nullptr;
  decltype(&::curl_multi_info_read) info_read = nullptr;
  decltype(&::curl_multi_cleanup) multi_cleanup = nullptr;
  decltype(&::curl_easy_getinfo) getinfo = nullptr;
  decltype(&::curl_easy_cleanup) cleanup = nullptr;
  decltype(&::curl_easy_strerror) strerror = nullptr;
  decltype(&::curl_slist_append) append = nullptr;
  decltype(&::curl_slist_free_all) free_all = nullptr;
};

template <typename Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

Result<const Library*> open_library() {
  static Library opened;
  void* library = nullptr;
  for (const char* name : {"libcurl.so.4", "libcurl-gnutls.so.4"})
    if (library == nullptr) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return Status::error("libcurl.so.4 cannot be loaded: " + std::string(dlerror()),
                         "Install libcurl (libcurl4 on Debian and Ubuntu)");
  const bool is_whole = find(library, "curl_global_init", opened.global_init) &&
                        find(library, "curl_easy_init", opened.init) &&
                        find(library, "curl_easy_setopt", opened.setopt) &&
                        find(library, "curl_multi_init", opened.multi_init) &&
                        find(library, "curl_multi_add_handle", opened.add) &&
                        find(library, "curl_multi_remove_handle", opened.remove) &&
                        find(library, "curl_multi_perform", opened.perform) &&
                        find(library, "curl_multi_poll", opened.poll) &&
                        find(library, "curl_multi_info_read", opened.info_read) &&
                        find(library, "curl_multi_cleanup", opened.multi_cleanup) &&
                        find(library, "curl_easy_getinfo", opened.getinfo) &&
                        find(library, "curl_easy_cleanup", opened.cleanup) &&
                        find(library, "curl_easy_strerror", opened.strerror) &&
                        find(library, "curl_slist_append", opened.append) &&
                        find(library, "curl_slist_free_all", opened.free_all);
  if (!is_whole || opened.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
    return Status::error("this libcurl.so.4 does not start", "Install version 7.66 or newer");
  return &opened;
}

/// Opened once, and never closed.
Result<const Library*> library() {
  static const Result<const Library*> opened = open_library();
  return opened;
}

struct Body {
  std::string text;
  size_t bytes_max = 0;
};

size_t take(char* bytes, size_t one, size_t count, void* to) {
  auto& body = *static_cast<Body*>(to);
  if (one * count > body.bytes_max - body.text.size()) return 0;  // ends it with CURLE_WRITE_ERROR
  body.text.append(bytes, one * count);
  return one * count;
}

class CurlHttp final : public Http {
 public:
  CurlHttp(const Library& curl, CURL* handle, CURLM* connection, const HostAndPort& at,
           Resolver resolver)
      : curl_(curl),
        handle_(handle),
        connection_(connection),
        at_(at),
        host_(at, std::move(resolver)) {
    const bool is_ipv6 = at.host.find(':') != std::string::npos;
    origin_ = "http://" + (is_ipv6 ? "[" + at.host + "]" : at.host) + ":" + std::to_string(at.port);
    curl.setopt(handle, CURLOPT_NOSIGNAL, 1L);  // other threads of the program go on
    curl.setopt(handle, CURLOPT_PROXY, "");
    curl.setopt(handle, CURLOPT_FOLLOWLOCATION, 0L);
    set_headers();
    curl.setopt(handle, CURLOPT_WRITEFUNCTION, &take);
  }
  ~CurlHttp() override {
    curl_.cleanup(handle_);
    curl_.multi_cleanup(connection_);
    curl_.free_all(headers_);
    curl_.free_all(addresses_);
  }
  CurlHttp(const CurlHttp&) = delete;
  CurlHttp& operator=(const CurlHttp&) = delete;

  Result<HttpAnswer> post(const std::string& path, const std::string& body,
                          const std::string& token, size_t bytes_max, WaitEnd end) override {
    if (token != token_) {
      token_ = token;
      set_headers();
    }
    if (addresses_ == nullptr && !is_number(at_.host)) BRAID_TRY(look_up(end));
    Body answer{{}, bytes_max};
    const std::string url = origin_ + path;
    curl_.setopt(handle_, CURLOPT_URL, url.c_str());
    curl_.setopt(handle_, CURLOPT_POSTFIELDSIZE, static_cast<long>(body.size()));
    curl_.setopt(handle_, CURLOPT_POSTFIELDS, body.c_str());
    curl_.setopt(handle_, CURLOPT_WRITEDATA, &answer);
    curl_.add(connection_, handle_);
    const CURLcode code = perform(end);
    curl_.remove(connection_, handle_);  // one that has not ended is cut off
    if (code != CURLE_OK) forget_addresses();
    if (code == CURLE_WRITE_ERROR) return Status::error("its answer is too long");
    if (code != CURLE_OK) return Status::error(curl_.strerror(code));
    HttpAnswer got{0, std::move(answer.text)};
    curl_.getinfo(handle_, CURLINFO_RESPONSE_CODE, &got.status);
    return got;
  }

 private:
  void set_headers() {
    curl_.free_all(
        std::exchange(headers_, curl_.append(nullptr, "Content-Type: application/json")));
    if (!token_.empty()) curl_.append(headers_, ("Authorization: " + token_).c_str());
    curl_.setopt(handle_, CURLOPT_HTTPHEADER, headers_);
  }

  /// libcurl would wait for a silent resolver when its handle is closed.
  Status look_up(WaitEnd end) {
    BRAID_LET(found, host_.find(end));
    std::string list;
    for (const addrinfo* each = found.get(); each != nullptr; each = each->ai_next)
      list += (list.empty() ? "" : ",") + number_of(*each);
    const std::string entry = at_.host + ":" + std::to_string(at_.port) + ":" + list;
    addresses_ = curl_.append(nullptr, entry.c_str());
    curl_.setopt(handle_, CURLOPT_RESOLVE, addresses_);
    return {};
  }

  void forget_addresses() {
    curl_.setopt(handle_, CURLOPT_RESOLVE, nullptr);
    curl_.free_all(std::exchange(addresses_, nullptr));
  }

  CURLcode perform(WaitEnd end) {
    for (;;) {
      int under_way = 0, messages = 0;
      curl_.perform(connection_, &under_way);
      if (const CURLMsg* ended = curl_.info_read(connection_, &messages); ended != nullptr)
        return ended->data.result;
      const int look_ms = end.look_ms(monotonic_ns());
      if (look_ms == 0) return CURLE_OPERATION_TIMEDOUT;
      curl_.poll(connection_, nullptr, 0, look_ms, nullptr);
    }
  }

  const Library& curl_;
  CURL* handle_;
  CURLM* connection_;  // kept between requests
  const HostAndPort at_;
  HostLookUp host_;
  curl_slist* addresses_ = nullptr;  // of the host; null: to be looked up, at first or again
  curl_slist* headers_ = nullptr;
  std::string token_;
  std::string origin_;
};

}  // namespace

Result<std::unique_ptr<Http>> open_http(const HostAndPort& at, Resolver resolver) {
  BRAID_LET(curl, library());
  CURL* handle = curl->init();
  CURLM* connection = curl->multi_init();
  if (handle == nullptr || connection == nullptr) return Status::error("libcurl is out of memory");
  return std::unique_ptr<Http>(
      std::make_unique<CurlHttp>(*curl, handle, connection, at, std::move(resolver)));
}

}  // namespace braid::transfer
