#include "emulator/model/machine.h"

#include <algorithm>
#include <utility>

#include "emulator/constants.h"

namespace braid::emulator {
namespace {

constexpr int kDirections = 3;  // host to device, device to host, peer

std::vector<double> capacities(const topology::Server& server) {
  std::vector<double> gbps;
  for (const topology::Link& link : server.links) {
    gbps.push_back(link.forward_gbps.value);
    gbps.push_back(link.backward_gbps.value);
    gbps.push_back(link.both_gbps.value);
  }
  return gbps;
}

}  // namespace

Machine::Machine(const topology::Server& server)
    : server_(server),
      links_(static_cast<int>(server.links.size())),
      simulation_(capacities(server)) {
  for (int link = 0; link < links_; ++link)
    if (server.links[link].both_gbps.value > 0)
      simulation_.flows().limit_both_ways(3 * link, 3 * link + 1, 3 * link + 2);
  gpus_.resize(server.gpus.size());
  for (size_t gpu = 0; gpu < gpus_.size(); ++gpu) {
    engines_.emplace_back(server.copy_engines_h2d.value);
    engines_.emplace_back(server.copy_engines_d2h.value);
    engines_.emplace_back(server.copy_engines_peer.value);
    add_sms(static_cast<int>(gpu));
  }
}

void Machine::add_sms(int gpu) {
  Flows& flows = simulation_.flows();
  gpus_[gpu].sms.push_back({Slots(server_.gpus[gpu].sm_count.value * kThreadsPerMultiprocessor),
                            flows.add_resource(server_.kernel.host_read_gbps.value),
                            flows.add_resource(server_.kernel.host_write_gbps.value),
                            {}});
}

// The contexts that share the GPU have changed in number.
void Machine::divide(int gpu) {
  Flows& flows = simulation_.flows();
  const Time now = simulation_.now();
  const topology::KernelSpeed& whole = server_.kernel;
  const double sharers = slowdown(gpu);
  for (const Sms& sms : gpus_[gpu].sms) {
    flows.set_capacity(now, sms.read, whole.host_read_gbps.value / sharers);
    flows.set_capacity(now, sms.write, whole.host_write_gbps.value / sharers);
    for (const int share_class : sms.classes)
      flows.set_cap(now, share_class, whole.block_gbps.value / sharers);
  }
}

int Machine::begin_kernel(int gpu, uint64_t context) {
  GpuState& state = gpus_[gpu];
  const int before = state.slices.sharers();
  const int slice = state.slices.begin(context);
  if (slice == static_cast<int>(state.sms.size())) add_sms(gpu);
  if (state.slices.sharers() != before) divide(gpu);
  return slice;
}

void Machine::end_kernel(int gpu, uint64_t context) {
  Slices& slices = gpus_[gpu].slices;
  const int before = slices.sharers();
  slices.end(context);
  if (slices.sharers() != before) divide(gpu);
}

void Machine::add_hops(std::vector<int>& resources, const std::vector<topology::Hop>& hops) const {
  for (const topology::Hop& hop : hops) {
    resources.push_back(3 * hop.link + (hop.forward ? 0 : 1));
    if (server_.links[hop.link].both_gbps.value > 0) resources.push_back(3 * hop.link + 2);
  }
}

// One stage of a route: between host memory and a GPU, or between two GPUs.
void Machine::add_leg(std::vector<int>& resources, Place from, Place to) const {
  if (from == to) return;
  if (from.is_gpu() && to.is_gpu())
    add_hops(resources, topology::peer_route(server_, from.number(), to.number()));
  else if (to.is_gpu())
    add_hops(resources, topology::host_route(server_, from.number(), to.number(), true));
  else if (from.is_gpu())
    add_hops(resources, topology::host_route(server_, to.number(), from.number(), false));
}

int Machine::find_class(const ClassKey& key, const std::function<std::vector<int>()>& resources,
                        double cap_gbps, int group) {
  const auto found = classes_.find(key);
  if (found != classes_.end()) return found->second;
  std::vector<int> crossed = resources();
  std::sort(crossed.begin(), crossed.end());
  crossed.erase(std::unique(crossed.begin(), crossed.end()), crossed.end());
  const int number = simulation_.flows().add_class(std::move(crossed), cap_gbps, group);
  classes_.emplace(key, number);
  return number;
}

std::vector<int> Machine::copy_route(Place source, Place destination, int passes) const {
  std::vector<int> resources;
  if (passes == kNothing) {
    add_leg(resources, source, destination);
    return resources;
  }
  const Place between = passes == kHostMemory ? Place::host(server_.gpus[source.number()].numa_node)
                                              : Place::gpu(passes);
  add_leg(resources, source, between);
  add_leg(resources, between, destination);
  return resources;
}

int Machine::copy_class(Place source, Place destination, int passes) {
  // Host to host is a CPU's copy, at the rate of one thread.
  const double cap = source.is_gpu() || destination.is_gpu() ? kDeviceMemoryGbps : kPageableGbps;
  return find_class(
      {Kind::kCopy, passes, source, destination},
      [&] { return copy_route(source, destination, passes); }, cap);
}

int Machine::pageable_class(Place source, Place destination, int passes) {
  return find_class(
      {Kind::kPageable, passes, source, destination},
      [&] { return copy_route(source, destination, passes); }, kPageableGbps);
}

int Machine::kernel_class(int launcher, int slice, Place source, Place destination) {
  const Place here = Place::gpu(launcher);
  Sms& sms = gpus_[launcher].sms[slice];
  const auto route = [&] {
    std::vector<int> resources;
    add_leg(resources, source, here);
    add_leg(resources, here, destination);
    if (!source.is_gpu()) resources.push_back(sms.read);
    if (!destination.is_gpu()) resources.push_back(sms.write);
    return resources;
  };
  const size_t known = classes_.size();
  const int gpus = static_cast<int>(gpus_.size());
  const int found = find_class({Kind::kKernel, launcher + gpus * slice, source, destination}, route,
                               server_.kernel.block_gbps.value / slowdown(launcher),
                               kDirections * launcher + direction(source, destination));
  if (classes_.size() > known) sms.classes.push_back(found);
  return found;
}

int Machine::direction(Place source, Place destination) {
  return !source.is_gpu() ? 0 : !destination.is_gpu() ? 1 : 2;
}

Slots& Machine::engine(Place source, Place destination, int passes) {
  const int at_an_end = source.is_gpu() ? source.number() : destination.number();
  const int gpu = passes >= 0 ? passes : at_an_end;
  return engines_[kDirections * gpu + direction(source, destination)];
}

void Machine::make_busy(int gpu, Time from, Time to) { busy_.push_back({gpu, from, to}); }

Time Machine::kernel_may_start(int gpu, Time due) const {
  bool moved = true;
  while (moved) {
    moved = false;
    for (const Busy& busy : busy_)
      if (busy.gpu == gpu && due >= busy.from && due < busy.to) {
        due = busy.to;
        moved = true;
      }
  }
  return due;
}

void Machine::scale_link(int link, double factor) {
  for (int resource = 3 * link; resource < 3 * link + 3; ++resource)
    simulation_.flows().set_capacity(simulation_.now(), resource,
                                     simulation_.flows().capacity(resource) * factor);
}

}  // namespace braid::emulator
