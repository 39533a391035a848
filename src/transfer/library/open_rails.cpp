#include "transfer/library/open_rails.h"

#include <utility>

#include "base/try.h"
#include "fabric/library/trust.h"
#include "fabric/ofi/domain.h"
#include "transfer/directory/names.h"

namespace braid::transfer {
namespace {

constexpr const char* kNetwork = "tcp;ofi_rxm";
constexpr const char* kHost = "shm";
constexpr double kUnknownGbps = 1.25;  // 10 Gbit/s
constexpr double kLoopbackGbps = 2;
constexpr double kSharedMemoryGbps = 5;

double nominal_gbps(const std::string& address, const std::vector<topology::Nic>& nics) {
  if (address.starts_with("127.") || address == "::1") return kLoopbackGbps;
  for (const topology::Nic& nic : nics)
    for (const std::string& each : nic.addresses)
      if (each == address && nic.link_gbps.value > 0) return nic.link_gbps.value;
  return kUnknownGbps;
}

Status add(const fabric::ofi::Quirks& quirks, const std::string& address, double gbps,
           int numa_node, OpenedRails& rails) {
  BRAID_LET(domain, fabric::ofi::open_domain(quirks, address));
  rails.domains.push_back(std::move(domain));
  rails.descriptions.push_back({quirks.provider, address, gbps, numa_node, {}});
  return {};
}

Status add_provider(const std::string& provider, const std::vector<topology::Nic>& nics,
                    OpenedRails& rails) {
  const fabric::ofi::Quirks* quirks = fabric::ofi::find_quirks(provider);
  if (quirks == nullptr)
    return Status::error("braid does not know the provider '" + provider + "'",
                         "`braid fabric doctor` lists those that it knows");
  if (!quirks->reaches_hosts && !quirks->listens_at_address)
    return add(*quirks, "this host", kSharedMemoryGbps, -1, rails);
  for (const std::string& address : rails.choice.addresses)
    BRAID_TRY(add(*quirks, address, nominal_gbps(address, nics), rails.choice.numa_node, rails));
  return {};
}

}  // namespace

Result<OpenedRails> open_rails(const OpenOptions& options, const std::vector<topology::Nic>& nics) {
  fabric::ServiceOptions wanted;
  wanted.provider = options.providers.size() == 1 ? options.providers.front() : kNetwork;
  wanted.addresses = options.addresses;
  wanted.nics = options.nics;
  wanted.secret_file = options.secret_file;
  wanted.allows_unauthenticated = options.allows_unauthenticated;
  OpenedRails rails;
  BRAID_LET(choice, fabric::rails_for(wanted, nics));
  rails.choice = choice;
  std::vector<std::string> reachable = choice.addresses;
  if (!options.listen.empty()) {
    BRAID_LET(listen, parse_host_and_port(options.listen));
    reachable.push_back(listen.host);
  }
  wanted.provider = kNetwork;
  BRAID_LET(secret, fabric::secret_for(wanted, reachable));
  rails.secret = secret;
  if (options.providers.empty()) {
    (void)add_provider(kHost, nics, rails);
    BRAID_TRY(add_provider(kNetwork, nics, rails));
  }
  for (const std::string& provider : options.providers)
    BRAID_TRY(add_provider(provider, nics, rails));
  return rails;
}

}  // namespace braid::transfer
