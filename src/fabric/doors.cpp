// Engine: the doors that it opens for its peers, and those that they have opened for it.
#include <utility>

#include "fabric/engine.h"

namespace braid::fabric {
namespace {

constexpr size_t kLengthBytes = sizeof(uint16_t);  // of an address in a message

}  // namespace

Status Engine::open_doors(Peer& peer) {
  if (!closing_fences_ || peer.version < 2) return {};
  for (size_t i = 0; i < worker_.rail_count(); ++i) {
    const Result<uint32_t> door = worker_.rail(i).open_door();
    if (!door.ok()) {
      for (size_t j = 0; j < i; ++j) worker_.rail(j).close_door(peer.doors[j]);
      return door.status();
    }
    peer.doors.push_back(door.value());
  }
  return {};
}

/// The addresses of its doors. Those of further endpoints are left out where a Hello would be too
/// large with them, and for peers that do not know them.
Doors Engine::doors_for(const Peer& peer) {
  Doors doors;
  for (size_t i = 0; i < peer.doors.size(); ++i) {
    const Bytes first = worker_.rail(i).door_address(peer.doors[i]);
    doors.push_back({{first.begin(), first.end()}, {}});
  }
  if (peer.version < 3) return doors;
  size_t size_bytes = encode(Message{0, 0, Hello{address_, 0, doors}}).size();
  for (size_t i = 0; i < peer.doors.size(); ++i)
    for (const Bytes further : worker_.rail(i).further_door_addresses(peer.doors[i])) {
      size_bytes += kLengthBytes + further.size();
      if (size_bytes > kMessageBytesMax) return doors;
      doors[i].further.emplace_back(further.begin(), further.end());
    }
  return doors;
}

Status Engine::connect_doors(Peer& peer, const Doors& doors) {
  for (size_t i = 0; i < doors.size(); ++i) {
    const std::vector<Bytes> further(doors[i].further.begin(), doors[i].further.end());
    const Result<uint32_t> connected = worker_.rail(i).connect_all(doors[i].first, further);
    if (!connected.ok()) return connected.status();
    peer.routes[i].peer = connected.value();
  }
  return {};
}

/// The grants to the peer are fenced once all that has come already is read.
void Engine::close_doors(uint64_t id) {
  Peer& peer = *peers_.find(id);
  const std::vector<uint32_t> doors = std::exchange(peer.doors, {});
  for (size_t i = 0; i < doors.size(); ++i) worker_.rail(i).close_door(doors[i]);
  for (auto& [number, grant] : grants_) {
    if (doors.empty() || grant.peer != id || grant.fence == Fence::kFenced) continue;
    grant.doors = doors;
    close_grant(number, grant, false);
  }
}

}  // namespace braid::fabric
