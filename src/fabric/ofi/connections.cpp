#include "fabric/ofi/connections.h"

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

/// `name_of` is getsockname or getpeername. Empty: the socket has no such end.
std::vector<std::byte> end_of(int descriptor, int (*name_of)(int, sockaddr*, socklen_t*)) {
  sockaddr_storage name{};
  socklen_t name_bytes = sizeof name;
  if (name_of(descriptor, reinterpret_cast<sockaddr*>(&name), &name_bytes) != 0) return {};
  return place_of({reinterpret_cast<const std::byte*>(&name), name_bytes});
}

bool listens(int descriptor) {
  int answer = 0;
  socklen_t answer_bytes = sizeof answer;
  return getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &answer, &answer_bytes) == 0 &&
         answer != 0;
}

/// True also for a connection that its peer has reset, which has no peer name any more.
bool is_incoming(int descriptor, const std::vector<std::byte>& place) {
  return end_of(descriptor, getsockname) == place && !listens(descriptor);
}

bool is_outgoing(int descriptor, const std::vector<std::byte>& place) {
  return end_of(descriptor, getpeername) == place;
}

unsigned long inode_of(int descriptor) {
  struct stat about {};
  return fstat(descriptor, &about) == 0 ? about.st_ino : 0;
}

std::vector<Connection> find(std::span<const std::byte> name,
                             bool (*is_it)(int, const std::vector<std::byte>&)) {
  std::vector<Connection> found;
  const std::vector<std::byte> place = place_of(name);
  const std::unique_ptr<DIR, CloseFolder> folder(opendir("/proc/self/fd"));
  if (place.empty() || folder == nullptr) return found;
  while (const dirent* entry = readdir(folder.get())) {
    const int descriptor = std::atoi(entry->d_name);
    if (is_it(descriptor, place)) found.push_back({descriptor, inode_of(descriptor)});
  }
  return found;
}

}  // namespace

bool Connection::is_open() const { return inode_of(descriptor) == inode; }

std::vector<Connection> incoming_at(std::span<const std::byte> name) {
  return find(name, is_incoming);
}

std::vector<Connection> outgoing_to(std::span<const std::byte> name) {
  return find(name, is_outgoing);
}

void shut_down(const Connection& connection) {
  if (connection.is_open()) shutdown(connection.descriptor, SHUT_RDWR);
}

}  // namespace braid::fabric::ofi
