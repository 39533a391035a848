// HTTP requests to one host, one after the other over one connection. libcurl makes them; it is
// opened at run time, not linked. No proxy, no redirection, no other protocol.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "transfer/directory/host_look_up.h"
#include "transfer/directory/names.h"
#include "transfer/directory/wait_end.h"

namespace braid::transfer {

struct HttpAnswer {
  long status = 0;
  std::string body;
};

class Http {
 public:
  virtual ~Http() = default;
  /// Posts JSON. Blocks until `end` at most. An answer longer than `bytes_max` is an error, and is
  /// not kept. `token`: of the header Authorization; empty: there is none.
  virtual Result<HttpAnswer> post(const std::string& path, const std::string& body,
                                  const std::string& token, size_t bytes_max, WaitEnd end) = 0;
};

/// An error: libcurl is not here.
Result<std::unique_ptr<Http>> open_http(const HostAndPort& at, Resolver resolver = look_up_host);

}  // namespace braid::transfer
