#include "transfer/library/addresses.h"

#include <algorithm>

#include "base/try.h"
#include "fabric/library/rail_address.h"
#include "host/addresses.h"

namespace braid::transfer {
namespace {

bool has(const topology::Nic& nic, const std::string& address) {
  return std::find(nic.addresses.begin(), nic.addresses.end(), address) != nic.addresses.end();
}

bool is_of_nic(const std::string& address, const std::vector<topology::Nic>& nics) {
  return std::any_of(nics.begin(), nics.end(),
                     [&](const topology::Nic& nic) { return has(nic, address); });
}

/// The address of a NIC that other hosts may reach, as an example in an error.
std::string example(const std::vector<topology::Nic>& nics) {
  for (const topology::Nic& nic : nics)
    for (const std::string& address : nic.addresses)
      if (!is_loopback(address)) return address;
  return "10.0.0.7";
}

}  // namespace

Result<Listener> Listener::parse(const std::string& text, const std::vector<topology::Nic>& nics) {
  Listener listener;
  listener.nics_ = nics;
  BRAID_LET(at, parse_host_and_port(text));
  listener.at_ = at;
  BRAID_LET(numbers, fabric::addresses_here(at.host, nics));
  if (fabric::is_wildcard(numbers.front())) listener.wildcard_ = numbers.front();
  const auto found = std::find_if(numbers.begin(), numbers.end(), [&](const std::string& number) {
    return !is_loopback(number) && is_of_nic(number, nics);
  });
  if (found != numbers.end()) listener.nic_address_ = *found;
  return listener;
}

Result<std::string> Listener::host_in_name(const fabric::RailChoice& rails) const {
  if (wildcard_.empty()) return at_.host;
  const bool takes_ipv6 = wildcard_ == "::";
  // Who listens at every address wants peers of other hosts, and loopback leads to none.
  for (const std::string& address : rails.addresses) {
    const Result<std::vector<std::string>> numbers = addresses_of(address);
    if (!numbers.ok() || is_loopback(numbers.value().front())) continue;
    if (takes_ipv6 || numbers.value().front().find(':') == std::string::npos) return address;
  }
  return Status::error(
      "'" + at_.host + "' listens at every address, and no rail says which one peers can reach",
      "Listen at that of a NIC (" + example(nics_) + ":" + std::to_string(at_.port) +
          "), or name addresses or NICs for the rails (--address, --nics, " +
          fabric::kNicsVariable + ")");
}

}  // namespace braid::transfer
