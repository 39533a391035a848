#include "transfer/library/open_rails.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <utility>

#include "base/try.h"
#include "fabric/library/endpoint_count.h"
#include "fabric/library/open_wire.h"
#include "fabric/library/placement.h"
#include "fabric/library/rail_address.h"
#include "fabric/library/trust.h"
#include "fabric/local/domain.h"
#include "fabric/ofi/domain.h"
#include "host/addresses.h"
#include "transfer/library/addresses.h"
#include "transfer/providers.h"

namespace braid::transfer {
namespace {

constexpr const char* kNetwork = "tcp;ofi_rxm";
constexpr const char* kHost = "shm";
constexpr const char* kThisHost = "this host";
constexpr double kUnknownGbps = 1.25;  // 10 Gbit/s
constexpr double kLoopbackGbps = 2;
constexpr double kSharedMemoryGbps = 5;

double assumed_gbps(const std::string& address) {
  return is_loopback(address) ? kLoopbackGbps : kUnknownGbps;
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

Status add_address(const std::string& provider, const fabric::ofi::Quirks& quirks,
                   const std::string& address, const fabric::EndpointCount& counts, RailHost& host,
                   OpenedRails& rails) {
  const double gbps = fabric::link_gbps(address, host.nics).value_or(assumed_gbps(address));
  return add(fabric::open_wire(quirks, address, counts, is_staged(provider), rails.trust),
             {provider, address, gbps, place_of(address, host), {}}, rails);
}

Status add_shared_memory(const std::string& provider, const fabric::ofi::Quirks& quirks,
                         const fabric::EndpointCount& counts, OpenedRails& rails) {
  return add(fabric::open_wire(quirks, kThisHost, counts, is_staged(provider), rails.trust),
             {provider, kThisHost, kSharedMemoryGbps, {}, {}}, rails);
}

Status add_provider(const std::string& provider, const fabric::EndpointCount& counts,
                    RailHost& host, OpenedRails& rails) {
  if (provider == kLocal)
    return add(fabric::local::open_domain(), {provider, kThisHost, kSharedMemoryGbps, {}, {}},
               rails);
  const fabric::ofi::Quirks* quirks = fabric::ofi::find_quirks(wire_of(provider));
  if (quirks == nullptr)
    return Status::error("braid does not know the provider '" + provider + "'",
                         "`braid fabric doctor` lists those that it knows");
  if (!quirks->reaches_hosts && !quirks->listens_at_address)
    return add_shared_memory(provider, *quirks, counts, rails);
  for (const std::string& address : rails.choice.addresses) {
    if (!quirks->takes_device) BRAID_TRY(fabric::check_rail_address(address, host.nics));
    BRAID_TRY(add_address(provider, *quirks, address, counts, host, rails));
  }
  return {};
}

struct Wanted {
  std::string provider;
  bool may_be_missing = false;
};

std::vector<Wanted> wanted_providers(const OpenOptions& options) {
  std::vector<Wanted> wanted;
  for (const std::string& provider : options.providers)
    if (provider != kMapped) wanted.push_back({provider});
  if (!options.providers.empty()) return wanted;
  wanted = {{kHost, true}, {kNetwork}};
  if (options.has_gpu_memory)
    wanted.insert(
        wanted.end(),
        {{kLocal, true}, {std::string(kHost) + kStaged, true}, {std::string(kNetwork) + kStaged}});
  return wanted;
}

bool copies_by_cpu(const Wanted& wanted, bool over_network) {
  const fabric::ofi::Quirks* quirks = fabric::ofi::find_quirks(wire_of(wanted.provider));
  return quirks != nullptr && quirks->copies_by_cpu && quirks->listens_at_address == over_network;
}

bool names_no_rails(const OpenOptions& options) {
  const char* variable = std::getenv(fabric::kNicsVariable);
  return options.addresses.empty() && options.nics.empty() &&
         (variable == nullptr || *variable == '\0');
}

/// Chooses where the rails are and where the engine listens.
Status choose_addresses(const OpenOptions& options, fabric::ServiceOptions wanted,
                        const std::vector<topology::Nic>& nics, OpenedRails& rails) {
  std::optional<Listener> listener;
  if (!options.listen.empty()) {
    BRAID_LET(parsed, Listener::parse(options.listen, nics));
    listener = parsed;
  }
  // Who is asked at a NIC's address can be reached there, too.
  if (listener && !listener->nic_address().empty() && names_no_rails(options))
    wanted.addresses = {listener->nic_address()};
  BRAID_LET(choice, fabric::rails_for(wanted, nics));
  rails.choice = choice;
  rails.listen = listener ? listener->at() : HostAndPort{choice.addresses.front(), 0};
  rails.host_in_name = rails.listen.host;
  if (!listener) return {};
  BRAID_LET(host, listener->host_in_name(choice));
  rails.host_in_name = host;
  return {};
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
  BRAID_TRY(choose_addresses(options, wanted, host.nics, rails));
  const fabric::RailChoice& choice = rails.choice;
  std::vector<std::string> reachable = choice.addresses;
  reachable.push_back(rails.listen.host);
  wanted.provider = kNetwork;
  BRAID_LET(trust, fabric::trust_for(wanted, reachable));
  rails.trust = trust;
  // Threads of rails, and libfabric's memory, stay near the NICs.
  const fabric::OnNode here(host.machine, options.is_pinned ? choice.numa_node : -1);
  const std::vector<Wanted> all = wanted_providers(options);
  // A request goes over one or the other, so the rails over the network share their endpoints'
  // CPUs, and those of the host theirs.
  const auto count_of = [&](bool over_network) {
    return static_cast<size_t>(std::count_if(all.begin(), all.end(), [&](const Wanted& each) {
      return copies_by_cpu(each, over_network);
    }));
  };
  BRAID_LET(of_network,
            fabric::endpoint_count(count_of(true) * choice.addresses.size(), host.nics));
  BRAID_LET(of_host, fabric::endpoint_count(count_of(false), host.nics));
  for (const Wanted& each : all) {
    const Status added =
        add_provider(each.provider, copies_by_cpu(each, false) ? of_host : of_network, host, rails);
    if (!added.ok() && !each.may_be_missing) return added;
  }
  if (rails.domains.empty())
    return Status::error("the providers name no rail",
                         "Name one beside '" + std::string(kMapped) + "'");
  return rails;
}

}  // namespace braid::transfer
