#include "fabric/library/rail_address.h"

#include "base/try.h"
#include "fabric/ofi/quirks.h"
#include "host/addresses.h"

namespace braid::fabric {
namespace {

/// An engine that names no provider takes the first one that opens, which may be any of them.
bool listens_at_addresses(const std::string& provider) {
  const ofi::Quirks* quirks = ofi::find_quirks(provider);
  return provider.empty() ||
         (quirks != nullptr && quirks->listens_at_address && !quirks->takes_device);
}

}  // namespace

std::string list_addresses(const std::vector<topology::Nic>& nics) {
  std::string text;
  for (const topology::Nic& nic : nics) {
    if (nic.addresses.empty()) continue;
    text += (text.empty() ? "" : ", ") + nic.name + " has ";
    for (const std::string& address : nic.addresses)
      text += (&address == &nic.addresses.front() ? "" : " and ") + address;
  }
  return text.empty() ? "none" : text;
}

bool is_wildcard(const std::string& address) { return address == "0.0.0.0" || address == "::"; }

Result<std::vector<std::string>> addresses_here(const std::string& host,
                                                const std::vector<topology::Nic>& nics) {
  const std::string quoted = "'" + host + "'";
  const std::string remedy = "Name an address that it has: " + list_addresses(nics);
  const Result<std::vector<std::string>> numbers = addresses_of(host);
  if (!numbers.ok())
    return Status::error(quoted + " is neither an address nor a known name", remedy);
  for (const std::string& number : numbers.value()) {
    BRAID_LET(is_here, is_of_this_host(number));
    if (is_here) return numbers;
  }
  return Status::error(quoted + " is no address of this host", remedy);
}

Status check_rail_address(const std::string& address, const std::vector<topology::Nic>& nics) {
  for (const topology::Nic& nic : nics)
    if (nic.rdma_device == address) return {};
  BRAID_LET(numbers, addresses_here(address, nics));
  if (!is_wildcard(numbers.front())) return {};
  return Status::error("a rail has one address, and '" + address + "' stands for all",
                       "Name addresses that peers can reach: " + list_addresses(nics));
}

Status check_rail_addresses(const ServiceOptions& options,
                            const std::vector<std::string>& addresses,
                            const std::vector<topology::Nic>& nics) {
  if (!listens_at_addresses(options.provider)) return {};
  for (const std::string& address : addresses) BRAID_TRY(check_rail_address(address, nics));
  return {};
}

}  // namespace braid::fabric
