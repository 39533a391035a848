// Names and addresses of hosts, as the C library knows them.
#pragma once

#include <netdb.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"

namespace braid {

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
/// For stream sockets. At least one.
using AddressList = std::unique_ptr<addrinfo, FreeAddresses>;

/// Whether it is an address, "10.0.0.7" or "fd00::7", and no name.
bool is_number(const std::string& host);
/// Whether it is an address of this host alone: 127.0.0.0/8, ::1 or localhost.
bool is_loopback(const std::string& host);

/// The addresses to connect to, or to listen at. If `host` is a name, the C library looks it up,
/// for as long as its resolver takes.
enum class AddressUse : uint8_t { kConnect, kListen };
Result<AddressList> look_up_host(const std::string& host, uint16_t port, AddressUse use);

/// "10.0.0.7", "fd00::7"; empty: it has none.
std::string number_of(const addrinfo& address);
/// The addresses to listen at as numbers. At least one.
Result<std::vector<std::string>> addresses_of(const std::string& host);
/// Whether a socket can be bound there: to an address of this host, or to a wildcard. An error if
/// this process can have no socket.
Result<bool> is_of_this_host(const std::string& address);

}  // namespace braid
