#include "fabric/ofi/connections.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

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

/// As getpeername, which does not name the peer of a connection that was not answered yet.
int get_peer_name(int descriptor, sockaddr* name, socklen_t* name_bytes) {
  int family = AF_UNSPEC;
  socklen_t family_bytes = sizeof family;
  (void)getsockopt(descriptor, SOL_SOCKET, SO_DOMAIN, &family, &family_bytes);
  // The kernel refuses to give less than is asked for.
  *name_bytes = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  return getsockopt(descriptor, SOL_SOCKET, SO_PEERNAME, name, name_bytes);
}

/// `name_of` is getsockname or get_peer_name. Empty: the socket has no such end.
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

/// Where a peer has connected to; empty: it is no connection. A connection that its peer has reset
/// has such a place, although it has no peer name any more.
std::vector<std::byte> incoming_place(int descriptor) {
  return listens(descriptor) ? std::vector<std::byte>() : end_of(descriptor, getsockname);
}

/// Of the kernel's names for states; TCP_CLOSE for what is no TCP socket.
int state_of(int descriptor) {
  tcp_info about{};
  about.tcpi_state = TCP_CLOSE;
  socklen_t about_bytes = sizeof about;
  (void)getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &about, &about_bytes);
  return about.tcpi_state;
}

unsigned long inode_of(int descriptor) {
  struct stat about {};
  return fstat(descriptor, &about) == 0 ? about.st_ino : 0;
}

/// 0: it is no socket.
unsigned long socket_inode_of(int descriptor) {
  struct stat about {};
  return fstat(descriptor, &about) == 0 && S_ISSOCK(about.st_mode) ? about.st_ino : 0;
}

}  // namespace

bool Connection::is_open() const { return inode_of(descriptor) == inode; }

void Connections::list() {
  if (std::exchange(is_listed_, true)) return;
  const std::unique_ptr<DIR, CloseFolder> folder(opendir("/proc/self/fd"));
  if (folder == nullptr) return;
  while (const dirent* entry = readdir(folder.get())) {
    const int descriptor = std::atoi(entry->d_name);
    const unsigned long inode = socket_inode_of(descriptor);
    if (inode == 0) continue;
    if (auto place = end_of(descriptor, getsockname); listens(descriptor) && !place.empty())
      listening_[std::move(place)].push_back({descriptor, inode});
    if (auto place = incoming_place(descriptor); !place.empty())
      incoming_[std::move(place)].push_back({descriptor, inode});
    if (auto place = end_of(descriptor, get_peer_name); !place.empty())
      outgoing_[std::move(place)].push_back({descriptor, inode});
  }
}

std::vector<Connection> Connections::at(const Places& places, std::span<const std::byte> name) {
  const auto found = places.find(place_of(name));
  return found == places.end() ? std::vector<Connection>() : found->second;
}

std::vector<Connection> Connections::incoming_at(std::span<const std::byte> name) {
  list();
  return at(incoming_, name);
}

std::vector<Connection> Connections::outgoing_to(std::span<const std::byte> name) {
  list();
  return at(outgoing_, name);
}

std::vector<Connection> Connections::shut_down_at(std::span<const std::byte> name) {
  list();
  // libfabric takes one only when it is called, so the list has all that it has taken.
  for (const Connection& listener : at(listening_, name)) shut_down(listener);
  std::vector<Connection> taken = at(incoming_, name);
  for (const Connection& connection : taken) shut_down(connection);
  return taken;
}

std::vector<Connection> Connections::connecting_to(std::span<const std::byte> name) {
  std::vector<Connection> found = outgoing_to(name);
  std::erase_if(found, [](const Connection& each) {
    return !each.is_open() || state_of(each.descriptor) != TCP_SYN_SENT;
  });
  return found;
}

/// By a descriptor of its own: the owner may close the other one at any time, and its number may be
/// another socket's then.
void shut_down(const Connection& connection) {
  const File held(fcntl(connection.descriptor, F_DUPFD_CLOEXEC, 0));
  if (held.is_open() && inode_of(held.get()) == connection.inode) shutdown(held.get(), SHUT_RDWR);
}

File hold(const Connection& connection) {
  File held(fcntl(connection.descriptor, F_DUPFD_CLOEXEC, 0));
  const bool is_it = held.is_open() && inode_of(held.get()) == connection.inode;
  return is_it && state_of(held.get()) == TCP_ESTABLISHED ? std::move(held) : File();
}

bool waits_for_its_end(const File& connection) {
  const int state = state_of(connection.get());
  return state == TCP_FIN_WAIT1 || state == TCP_CLOSING || state == TCP_LAST_ACK;
}

void reset(const File& connection) {
  sockaddr nowhere{};
  nowhere.sa_family = AF_UNSPEC;
  (void)connect(connection.get(), &nowhere, sizeof nowhere);
}

}  // namespace braid::fabric::ofi
