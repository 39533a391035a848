#include "transfer/transports.h"

#include <algorithm>

#include "transfer/providers.h"

namespace braid::transfer {
namespace {

// Assumed rates and latencies of rails' hops.
constexpr double kWireLatencyUs = 20;
constexpr double kSharedLatencyUs = 5;
constexpr double kIntoHostGbps = 2;  // of `local`, through a queue that two processes share
// The size by which transports are ranked. Once they are used, their rates are measured.
constexpr uint64_t kTypicalBytes = 64 << 20;

bool is_host_memory(const Endpoint& end) { return !end.is_file && !end.place.is_gpu; }

/// The places of the graph. An end that is host memory is the host memory of its side, and within
/// one process both sides have the same.
class Stops {
 public:
  Stops(const Ends& ends, bool is_self)
      : ends_(ends),
        source_host_(is_host_memory(ends.source())              ? kSource
                     : is_self && is_host_memory(ends.target()) ? kTarget
                                                                : kSourceHost),
        target_host_(is_self                         ? source_host_
                     : is_host_memory(ends.target()) ? kTarget
                                                     : kTargetHost) {}

  static constexpr uint32_t kSource = 0, kSourceHost = 1, kTargetHost = 2, kTarget = 3;
  static constexpr uint32_t kRelays = 4;  ///< and above: relays, by their GPUs
  uint32_t source_host() const { return source_host_; }
  uint32_t target_host() const { return target_host_; }
  /// Where a rail that reaches GPUs takes the bytes from and puts them. It does not reach files.
  uint32_t source_memory() const { return ends_.source().is_file ? source_host_ : kSource; }
  uint32_t target_memory() const { return ends_.target().is_file ? target_host_ : kTarget; }

 private:
  const Ends& ends_;
  uint32_t source_host_, target_host_;
};

Hop assumed_hop(HopKind kind, uint32_t from, uint32_t to) {
  const HopCost cost = assumed_cost(kind);
  return {from, to, cost.gbps, cost.latency_us, kind, 0};
}

/// Between a GPU and host memory of this process: its own link, and those of relays.
void add_copies(const std::vector<CopyPath>& copies, uint32_t from, uint32_t to, bool is_to_gpu,
                std::vector<Hop>& hops) {
  const Hop assumed = assumed_hop(HopKind::kCopy, from, to);
  if (copies.empty()) hops.push_back(assumed);
  for (const CopyPath& path : copies) {
    Hop copy = assumed;
    copy.gbps = path.pcie_gbps;
    if (path.nvlink_gbps > 0) {
      const uint32_t relay = Stops::kRelays + static_cast<uint32_t>(path.gpu);
      Hop nvlink = assumed_hop(HopKind::kNvLink, from, to);
      nvlink.gbps = path.nvlink_gbps;
      (is_to_gpu ? copy.to : copy.from) = relay;
      (is_to_gpu ? nvlink.from : nvlink.to) = relay;
      hops.push_back(nvlink);
    }
    hops.push_back(copy);
  }
}

/// Without rails. There is no hop that no backend makes: copies between two GPUs of this process
/// need no host memory between them, and mapped memory is copied by the CPU from and to memory of
/// the caller's.
std::vector<Hop> hops_without_rails(const Ends& ends, const Links& links, const Stops& stops) {
  std::vector<Hop> hops;
  const Endpoint& source = ends.source();
  const Endpoint& target = ends.target();
  if (links.is_self && source.place.is_gpu && target.place.is_gpu)
    return {assumed_hop(HopKind::kCopy, Stops::kSource, Stops::kTarget)};
  if (source.is_file)
    hops.push_back(assumed_hop(HopKind::kFile, Stops::kSource, stops.source_host()));
  if (target.is_file)
    hops.push_back(assumed_hop(HopKind::kFile, stops.target_host(), Stops::kTarget));
  if (source.place.is_gpu)
    add_copies(links.copies, Stops::kSource, stops.source_host(), false, hops);
  if (target.place.is_gpu)
    add_copies(links.copies, stops.target_host(), Stops::kTarget, true, hops);
  const bool is_between_hosts = is_host_memory(ends.here) && is_host_memory(ends.there);
  if (is_between_hosts && links.is_self)
    hops.push_back(assumed_hop(HopKind::kMemory, Stops::kSource, Stops::kTarget));
  if (is_between_hosts && ends.there.is_mapped)
    hops.push_back(assumed_hop(HopKind::kMapped, Stops::kSource, Stops::kTarget));
  return hops;
}

// ---- Rails ----

/// Providers that can be of use: those for GPUs where one end is a GPU, or may be one, and the
/// others elsewhere. Where both would do, one of them is enough.
std::vector<std::string> useful_providers(const Ends& ends, const Links& links) {
  const auto has = [&](bool for_gpus) {
    return std::any_of(links.gbps.begin(), links.gbps.end(),
                       [&](const auto& each) { return reaches_gpus(each.first) == for_gpus; });
  };
  const bool is_on_gpu = ends.here.place.is_gpu || ends.there.place.is_gpu;
  // Memory that was registered later may be GPU memory.
  const bool wants_gpu_rails = is_on_gpu || (!ends.there.is_known && has(true));
  std::vector<std::string> useful;
  for (const auto& [provider, gbps] : links.gbps) {
    const bool is_left_out =
        reaches_gpus(provider)
            ? !wants_gpu_rails && has(false)
            : wants_gpu_rails && (!is_on_gpu || links.gbps.contains(provider + kStaged));
    if (!is_left_out) useful.push_back(provider);
  }
  return useful;
}

/// The provider's own hop. `local` connects memory of every kind. Other rails connect host memory:
/// where they stage, both sides copy to and from their GPUs by themselves; if not, this side can,
/// and the owner cannot.
void add_rail(const std::string& provider, double gbps, const Ends& ends, const Stops& stops,
              uint32_t transport, std::vector<Hop>& hops) {
  Hop hop{stops.source_host(), stops.target_host(), gbps,
          kWireLatencyUs,      HopKind::kRail,      transport};
  if (stays_in_host(provider)) hop.latency_us = kSharedLatencyUs;
  if (provider == kLocal) {
    const HopCost copy = assumed_cost(HopKind::kCopy);
    hop = {stops.source_memory(), stops.target_memory(), copy.gbps,
           copy.latency_us,       HopKind::kRail,        transport};
    if (!ends.target().place.is_gpu)
      hop.gbps = kIntoHostGbps;
    else if (ends.source().place.is_gpu)
      hop.gbps = assumed_cost(HopKind::kNvLink).gbps;
  } else if (ends.there.place.is_gpu && !is_staged(provider)) {
    return;
  }
  hops.push_back(hop);
}

// ---- Chains ----

/// The main hop is the one whose kind is the greatest: the rest of the chain is before or behind
/// it.
Transport transport_of(const std::vector<Hop>& hops, const Route& route,
                       const std::vector<std::string>& providers, const Ends& ends) {
  Transport found;
  found.carrier = HopKind::kCopy;
  for (const size_t index : route.hops) {
    const Hop& hop = hops[index];
    found.hops.push_back(hop);
    found.carrier = std::max(found.carrier, hop.kind);
    if (hop.kind == HopKind::kRail) found.provider = providers[hop.transport];
  }
  const bool reaches_gpu_here = found.carrier == HopKind::kCopy || reaches_gpus(found.provider);
  found.is_through_host = ends.here.place.is_gpu && !reaches_gpu_here;
  return found;
}

/// Adds it to the chains of the same backend, if there are some.
void add(Transport&& found, std::vector<Transport>& all) {
  for (Transport& known : all)
    if (known.carrier == found.carrier && known.provider == found.provider) {
      known.beside.push_back(std::move(found.hops));
      return;
    }
  all.push_back(std::move(found));
}

/// Those over networks carry a request together, and so do those within the host.
bool are_alike(const Transport& a, const Transport& b) {
  return a.carrier == b.carrier && a.hops.size() == b.hops.size() &&
         stays_in_host(a.provider) == stays_in_host(b.provider);
}

}  // namespace

HopCost assumed_cost(HopKind kind) {
  switch (kind) {
    case HopKind::kNvLink: return {100, 0};
    case HopKind::kCopy: return {25, 10};  // of a GPU's PCIe link
    case HopKind::kFile: return {2, 100};
    case HopKind::kMemory:
    case HopKind::kMapped: return {10, 1};
    case HopKind::kRail: return {1, kWireLatencyUs};
  }
  return {};
}

std::string stop_name(uint32_t stop, const Ends& ends) {
  if (stop >= Stops::kRelays) return "GPU " + std::to_string(stop - Stops::kRelays);
  if (stop != Stops::kSource && stop != Stops::kTarget) return "host memory";
  const Endpoint& end = stop == Stops::kSource ? ends.source() : ends.target();
  if (end.is_file) return "a file";
  return end.place.is_gpu ? "GPU " + std::to_string(end.place.gpu) : "host memory";
}

int relay_of(const std::vector<Hop>& chain) {
  for (const Hop& hop : chain)
    if (const uint32_t stop = std::max(hop.from, hop.to); stop >= Stops::kRelays)
      return static_cast<int>(stop - Stops::kRelays);
  return -1;
}

std::vector<Transport> transports_between(const Ends& ends, const Links& links) {
  const Stops stops(ends, links.is_self);
  std::vector<Hop> hops = hops_without_rails(ends, links, stops);
  const std::vector<std::string> providers = useful_providers(ends, links);
  for (uint32_t i = 0; i < providers.size(); ++i)
    add_rail(providers[i], links.gbps.at(providers[i]), ends, stops, i, hops);
  std::vector<Transport> found;
  for (const Route& route :
       find_routes(hops, Stops::kSource, Stops::kTarget, kTypicalBytes, kChunkBytes))
    add(transport_of(hops, route, providers, ends), found);
  // What a NIC claims says nothing of how soon bytes arrive that stay in the host.
  std::stable_partition(found.begin(), found.end(),
                        [](const Transport& each) { return each.carrier == HopKind::kMapped; });
  for (size_t i = 1; i < found.size(); ++i)
    found[i].rank =
        static_cast<uint8_t>(found[i - 1].rank + (are_alike(found[i - 1], found[i]) ? 0 : 1));
  return found;
}

}  // namespace braid::transfer
