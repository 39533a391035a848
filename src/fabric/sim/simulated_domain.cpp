#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "fabric/sim/parts.h"

namespace braid::fabric::sim {
namespace {

constexpr uint64_t kPiecesMax = 64;
constexpr uint64_t kPieceBytes = 64;

bool contains(MutableBytes outer, Bytes inner) {
  return inner.data() >= outer.data() && inner.data() + inner.size() <= outer.data() + outer.size();
}

}  // namespace

SimulatedDomain::SimulatedDomain(Network& network, Network::Nic& nic)
    : network_(network), nic_(nic), address_(sizeof nic.place) {
  std::memcpy(address_.data(), &nic.place, sizeof nic.place);
}

SimulatedDomain::~SimulatedDomain() { network_.close(nic_); }

Result<uint32_t> SimulatedDomain::add_region(MutableBytes memory, Access access) {
  if (memory.size() > nic_.region_bytes_max)
    return Status::error("the simulated NIC registers no memory of this size");
  // Some wires name memory by its address, others by the offset in the region.
  const uint64_t base = network_.random_.chance(0.5) ? network_.random_.next() >> 16 : 0;
  nic_.regions[nic_.next_region] = {memory, access, {base, network_.random_.next()}, kNoDoor};
  return nic_.next_region++;
}

Result<uint32_t> SimulatedDomain::add_door_region(uint32_t door, MutableBytes memory) {
  Result<uint32_t> added = add_region(memory, Access::kRemoteWrite);
  if (added.ok()) nic_.regions.at(added.value()).door = door;
  return added;
}

Result<uint32_t> SimulatedDomain::add_twin_region(std::optional<uint32_t> door, MutableBytes memory,
                                                  const RemoteRange& twin) {
  Result<uint32_t> added = add_region(memory, Access::kRemoteWrite);
  if (!added.ok()) return added;
  Network::Nic::Region& region = nic_.regions.at(added.value());
  region.range = twin;
  region.door = door.value_or(kNoDoor);
  return added;
}

RemoteRange SimulatedDomain::remote_range(uint32_t region) const {
  return nic_.regions.at(region).range;
}

void SimulatedDomain::remove_region(uint32_t region) { nic_.regions.erase(region); }

// A door's address is that of its place, followed by the door's number.
Result<uint32_t> SimulatedDomain::connect(Bytes address) {
  Network::Nic::Peer peer{kNobody, kNoDoor};
  if (address.size() != sizeof peer.place && address.size() != sizeof peer.place + sizeof peer.door)
    return Status::error("no address of a simulated network");
  std::memcpy(&peer.place, address.data(), sizeof peer.place);
  if (address.size() > sizeof peer.place)
    std::memcpy(&peer.door, address.data() + sizeof peer.place, sizeof peer.door);
  nic_.peers.push_back(peer);
  return static_cast<uint32_t>(nic_.peers.size() - 1);
}

void SimulatedDomain::disconnect(uint32_t peer) { nic_.peers.at(peer) = {kNobody, kNoDoor}; }

void SimulatedDomain::abandon(uint32_t peer, Absence absence) {
  if (absence == Absence::kSilent && !network_.options_.breaks_connections) return;
  for (const std::shared_ptr<Network::Flight>& flight : std::vector(nic_.flights))
    if (flight->peer == peer) network_.fail(flight);
}

Result<uint32_t> SimulatedDomain::open_door() {
  const uint32_t door = network_.next_door_++;
  std::vector<std::byte> name = address_;
  name.resize(address_.size() + sizeof door);
  std::memcpy(name.data() + address_.size(), &door, sizeof door);
  nic_.doors[door] = std::move(name);
  return door;
}

void SimulatedDomain::close_door(uint32_t door) {
  nic_.doors.erase(door);
  if (!network_.random_.chance(0.5)) return;
  nic_.closing_doors.insert(door);
  const auto over = [network = &network_, id = nic_.id, door] {
    Network::Nic* nic = network->find(id);
    if (nic == nullptr) return;
    nic->closing_doors.erase(door);
    network->wake(*nic);
  };
  network_.simulation_.after_us(network_.some_latency_us(), over);
}

/// Each peer has a queue of its own, so a silent peer holds up nobody else.
bool SimulatedDomain::is_full(uint32_t peer) {
  const auto queued = std::count_if(nic_.flights.begin(), nic_.flights.end(),
                                    [&](const auto& flight) { return flight->peer == peer; });
  if (queued >= network_.options_.queue_depth) return true;
  if (network_.options_.full_chance <= 0) return false;
  if (!network_.random_.chance(network_.options_.full_chance)) return false;
  // Perhaps no completion will come to wake the process, so it is woken separately.
  network_.simulation_.after_us(network_.some_latency_us(), [network = &network_, id = nic_.id] {
    if (const Network::Nic* nic = network->find(id)) network->wake(*nic);
  });
  return true;
}

// A caller that posts memory outside its region has a bug: on a real network it would fault.
void SimulatedDomain::check_source(uint32_t region, Bytes source) const {
  const auto found = nic_.regions.find(region);
  if (found == nic_.regions.end() || !contains(found->second.memory, source) || source.empty())
    throw std::logic_error("posted memory that lies outside its region");
}

bool SimulatedDomain::post_write(const Write& write) {
  if (is_full(write.peer)) return false;
  if (write.further.size() >= nic_.traits.segments_max)
    throw std::logic_error("posted more segments than the domain takes");
  auto flight = std::make_shared<Network::Flight>();
  flight->from = nic_.id;
  flight->peer = write.peer;
  flight->to = nic_.peers.at(write.peer).place;
  flight->door = nic_.peers.at(write.peer).door;
  flight->segments.push_back({write.source, write.target_address});
  flight->segments.insert(flight->segments.end(), write.further.begin(), write.further.end());
  for (const Segment& segment : flight->segments) {
    check_source(write.region, segment.source);
    flight->size_bytes += segment.source.size();
  }
  flight->context = write.context;
  flight->target_key = write.target_key;
  flight->immediate = write.immediate;
  flight->slices = write.slices;
  const uint64_t pieces_bytes = (flight->size_bytes + kPiecesMax - 1) / kPiecesMax;
  flight->piece_bytes = (pieces_bytes + kPieceBytes - 1) / kPieceBytes * kPieceBytes;
  const uint64_t pieces = (flight->size_bytes + flight->piece_bytes - 1) / flight->piece_bytes;
  flight->missing = pieces == kPiecesMax ? ~uint64_t{0} : (uint64_t{1} << pieces) - 1;
  network_.depart(flight);
  return true;
}

bool SimulatedDomain::post_send(uint32_t peer, uint32_t region, Bytes message, uint64_t context) {
  if (is_full(peer)) return false;
  check_source(region, message);
  auto flight = std::make_shared<Network::Flight>();
  flight->from = nic_.id;
  flight->peer = peer;
  flight->to = nic_.peers.at(peer).place;
  flight->is_message = true;
  flight->segments.push_back({message});
  flight->size_bytes = message.size();
  flight->context = context;
  network_.depart(flight);
  return true;
}

bool SimulatedDomain::post_receive(uint32_t region, MutableBytes buffer, uint64_t context) {
  check_source(region, buffer);
  nic_.buffers.push_back({buffer, context});
  network_.match_messages(nic_);
  return true;
}

size_t SimulatedDomain::poll(std::span<Completion> completions) {
  network_.polled_ = &nic_;
  const auto held = std::exchange(nic_.held_until_polled, {});
  for (const auto& go_on : held) go_on();
  network_.polled_ = nullptr;
  // Completions come in any order.
  size_t count = 0;
  while (count < completions.size() && !nic_.completions.empty()) {
    const size_t which = network_.random_.below(nic_.completions.size());
    completions[count++] = nic_.completions[which];
    nic_.completions[which] = nic_.completions.back();
    nic_.completions.pop_back();
  }
  return count;
}

}  // namespace braid::fabric::sim
