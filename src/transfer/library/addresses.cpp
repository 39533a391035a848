#include "transfer/library/addresses.h"

#include <algorithm>

#include "base/try.h"
#include "transfer/directory/socket.h"

namespace braid::transfer {
namespace {

bool is_wildcard(const std::string& address) { return address == "0.0.0.0" || address == "::"; }

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

bool has(const topology::Nic& nic, const std::string& address) {
  return std::find(nic.addresses.begin(), nic.addresses.end(), address) != nic.addresses.end();
}

bool is_of_nic(const std::string& address, const std::vector<topology::Nic>& nics) {
  return std::any_of(nics.begin(), nics.end(),
                     [&](const topology::Nic& nic) { return has(nic, address); });
}

/// "eth0 has 10.0.0.7 and fd00::7, lo has 127.0.0.1"
std::string describe(const std::vector<topology::Nic>& nics) {
  std::string text;
  for (const topology::Nic& nic : nics) {
    if (nic.addresses.empty()) continue;
    text += (text.empty() ? "" : ", ") + nic.name + " has ";
    for (const std::string& address : nic.addresses)
      text += (&address == &nic.addresses.front() ? "" : " and ") + address;
  }
  return text.empty() ? "none" : text;
}

/// The numbers of the host. An error: none of them is of this host.
Result<std::vector<std::string>> addresses_here(const std::string& host,
                                                const std::vector<topology::Nic>& nics) {
  const std::string quoted = "'" + host + "'";
  const std::string remedy = "Name an address that it has: " + describe(nics);
  const Result<std::vector<std::string>> numbers = addresses_of(host);
  if (!numbers.ok())
    return Status::error(quoted + " is neither an address nor a known name", remedy);
  if (std::none_of(numbers.value().begin(), numbers.value().end(), is_of_this_host))
    return Status::error(quoted + " is no address of this host", remedy);
  return numbers;
}

/// The address of a NIC that other hosts may reach, as an example in an error.
std::string example(const std::vector<topology::Nic>& nics) {
  for (const topology::Nic& nic : nics)
    for (const std::string& address : nic.addresses)
      if (!is_loopback(address)) return address;
  return "10.0.0.7";
}

}  // namespace

Status check_rail_address(const std::string& address, const std::vector<topology::Nic>& nics) {
  for (const topology::Nic& nic : nics)
    if (nic.rdma_device == address) return {};
  BRAID_LET(numbers, addresses_here(address, nics));
  if (!is_wildcard(numbers.front())) return {};
  return Status::error("a rail has one address, and '" + address + "' stands for all",
                       "Name addresses that peers can reach: " + describe(nics));
}

Result<Listener> Listener::parse(const std::string& text, const std::vector<topology::Nic>& nics) {
  Listener listener;
  listener.nics_ = nics;
  BRAID_LET(at, parse_host_and_port(text));
  listener.at_ = at;
  BRAID_LET(numbers, addresses_here(at.host, nics));
  if (is_wildcard(numbers.front())) listener.wildcard_ = numbers.front();
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
