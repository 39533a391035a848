// Looks a host's name up, for as long as the caller likes: nothing ends the C library's look-up
// while its resolver is silent. So that runs in a thread of its own, which outlives this object if
// it must. The libraries are never unloaded (-z nodelete).
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "host/addresses.h"
#include "transfer/directory/names.h"
#include "transfer/directory/wait_end.h"

namespace braid::transfer {

/// `look_up_host`, or what stands for it in tests.
using Resolver =
    std::function<Result<AddressList>(const std::string& host, uint16_t port, AddressUse use)>;

/// Used by one thread at a time. There is at most one thread behind it: who comes while that still
/// waits for the resolver waits for the same answer.
class HostLookUp {
 public:
  explicit HostLookUp(HostAndPort at, Resolver resolver = look_up_host);

  /// The addresses to connect to. Blocks until `end` at most, and not at all if the host is a
  /// number.
  Result<AddressList> find(WaitEnd end);

 private:
  struct UnderWay;

  bool begin();

  const HostAndPort at_;
  const Resolver resolver_;
  std::shared_ptr<UnderWay> under_way_;  // null: nobody looks
};

}  // namespace braid::transfer
