#include "transfer/library/open_rails.h"

#include <algorithm>
#include <utility>

#include "base/try.h"
#include "fabric/library/trust.h"
#include "fabric/local/domain.h"
#include "fabric/ofi/domain.h"
#include "fabric/staged/domain.h"
#include "transfer/directory/names.h"
#include "transfer/providers.h"

namespace braid::transfer {
namespace {

constexpr const char* kNetwork = "tcp;ofi_rxm";
constexpr const char* kHost = "shm";
constexpr const char* kThisHost = "this host";
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

Place place_of(const std::string& address, const RailHost& host) {
  for (const topology::Nic& nic : host.nics)
    if (std::find(nic.addresses.begin(), nic.addresses.end(), address) != nic.addresses.end())
      return host.places.of_nic(nic);
  return {};
}

Status add(Result<std::unique_ptr<fabric::Domain>> domain, RailDescription description,
           OpenedRails& rails) {
  if (!domain.ok()) return domain.status();
  if (rails.domains.size() == kRailsInDescriptionMax)
    return Status::error("an engine has at most " + std::to_string(kRailsInDescriptionMax) +
                         " rails");
  rails.domains.push_back(std::move(domain).value());
  rails.descriptions.push_back(std::move(description));
  return {};
}

/// Opens a rail of libfabric, with staging if asked for: none of libfabric's providers touches GPU
/// memory.
Result<std::unique_ptr<fabric::Domain>> open_wire(const fabric::ofi::Quirks& quirks,
                                                  const std::string& address, bool stages) {
  Result<std::unique_ptr<fabric::Domain>> wire = fabric::ofi::open_domain(quirks, address);
  if (!wire.ok() || !stages) return wire;
  return fabric::staged::stage(std::move(wire).value());
}

Status add_provider(const std::string& provider, RailHost& host, OpenedRails& rails) {
  if (provider == kLocal)
    return add(fabric::local::open_domain(), {provider, kThisHost, kSharedMemoryGbps, {}, {}},
               rails);
  const fabric::ofi::Quirks* quirks = fabric::ofi::find_quirks(wire_of(provider));
  if (quirks == nullptr)
    return Status::error("braid does not know the provider '" + provider + "'",
                         "`braid fabric doctor` lists those that it knows");
  if (!quirks->reaches_hosts && !quirks->listens_at_address)
    return add(open_wire(*quirks, kThisHost, is_staged(provider)),
               {provider, kThisHost, kSharedMemoryGbps, {}, {}}, rails);
  for (const std::string& address : rails.choice.addresses)
    BRAID_TRY(add(
        open_wire(*quirks, address, is_staged(provider)),
        {provider, address, nominal_gbps(address, host.nics), place_of(address, host), {}}, rails));
  return {};
}

/// Adds the default providers. Missing ones are left out, except that the network must be there.
Status add_default_providers(bool has_gpu_memory, RailHost& host, OpenedRails& rails) {
  (void)add_provider(kHost, host, rails);
  BRAID_TRY(add_provider(kNetwork, host, rails));
  if (!has_gpu_memory) return {};
  (void)add_provider(kLocal, host, rails);
  (void)add_provider(std::string(kHost) + kStaged, host, rails);
  return add_provider(std::string(kNetwork) + kStaged, host, rails);
}

}  // namespace

Result<OpenedRails> open_rails(const OpenOptions& options, RailHost& host) {
  fabric::ServiceOptions wanted;
  wanted.provider = options.providers.size() == 1 ? wire_of(options.providers.front()) : kNetwork;
  wanted.addresses = options.addresses;
  wanted.nics = options.nics;
  wanted.secret_file = options.secret_file;
  wanted.allows_unauthenticated = options.allows_unauthenticated;
  OpenedRails rails;
  BRAID_LET(choice, fabric::rails_for(wanted, host.nics));
  rails.choice = choice;
  std::vector<std::string> reachable = choice.addresses;
  if (!options.listen.empty()) {
    BRAID_LET(listen, parse_host_and_port(options.listen));
    reachable.push_back(listen.host);
  }
  wanted.provider = kNetwork;
  BRAID_LET(secret, fabric::secret_for(wanted, reachable));
  rails.secret = secret;
  if (options.providers.empty())
    BRAID_TRY(add_default_providers(options.has_gpu_memory, host, rails));
  for (const std::string& provider : options.providers)
    if (provider != kMapped) BRAID_TRY(add_provider(provider, host, rails));
  if (rails.domains.empty())
    return Status::error("the providers name no rail",
                         "Name one beside '" + std::string(kMapped) + "'");
  return rails;
}

}  // namespace braid::transfer
