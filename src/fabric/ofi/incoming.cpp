#include "fabric/ofi/incoming.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cstdlib>
#include <cstring>
#include <memory>

namespace braid::fabric::ofi {
namespace {

struct CloseFolder {
  void operator()(DIR* folder) const { closedir(folder); }
};

/// The address's port and host as bytes that can be compared; empty for other families.
std::vector<std::byte> place_of(std::span<const std::byte> name) {
  std::vector<std::byte> place;
  const auto take = [&](const auto& field) {
    const std::byte* first = reinterpret_cast<const std::byte*>(&field);
    place.insert(place.end(), first, first + sizeof field);
  };
  sa_family_t family = AF_UNSPEC;
  if (name.size() < sizeof(sockaddr_in)) return place;
  std::memcpy(&family, name.data(), sizeof family);
  if (family == AF_INET) {
    sockaddr_in address{};
    std::memcpy(&address, name.data(), sizeof address);
    take(address.sin_port);
    take(address.sin_addr);
  }
  if (family == AF_INET6 && name.size() >= sizeof(sockaddr_in6)) {
    sockaddr_in6 address{};
    std::memcpy(&address, name.data(), sizeof address);
    take(address.sin6_port);
    take(address.sin6_addr);
  }
  return place;
}

bool is_incoming(int descriptor, const std::vector<std::byte>& place) {
  sockaddr_storage local{}, peer{};
  socklen_t local_bytes = sizeof local, peer_bytes = sizeof peer;
  if (getsockname(descriptor, reinterpret_cast<sockaddr*>(&local), &local_bytes) != 0) return false;
  if (place_of({reinterpret_cast<const std::byte*>(&local), local_bytes}) != place) return false;
  return getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &peer_bytes) == 0;
}

unsigned long inode_of(int descriptor) {
  struct stat about {};
  return fstat(descriptor, &about) == 0 ? about.st_ino : 0;
}

}  // namespace

bool Incoming::is_open() const { return inode_of(descriptor) == inode; }

std::vector<Incoming> incoming_at(std::span<const std::byte> name) {
  std::vector<Incoming> found;
  const std::vector<std::byte> place = place_of(name);
  const std::unique_ptr<DIR, CloseFolder> folder(opendir("/proc/self/fd"));
  if (place.empty() || folder == nullptr) return found;
  while (const dirent* entry = readdir(folder.get())) {
    const int descriptor = std::atoi(entry->d_name);
    if (is_incoming(descriptor, place)) found.push_back({descriptor, inode_of(descriptor)});
  }
  return found;
}

void shut_down(const Incoming& connection) {
  if (connection.is_open()) shutdown(connection.descriptor, SHUT_RDWR);
}

}  // namespace braid::fabric::ofi
