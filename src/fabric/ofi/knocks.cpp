#include "fabric/ofi/knocks.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "fabric/ofi/connections.h"

namespace braid::fabric::ofi {
namespace {

constexpr uint64_t kLookNs = 1'000'000;
/// The pause between knocks, and the part of the time waited so far that it grows to.
constexpr uint64_t kAgainMinNs = 20'000'000;
constexpr uint64_t kAgainPart = 8;
constexpr size_t kPlacesMax = 64;
/// How long the connections to an address are kept while no link to it is wanted.
constexpr uint64_t kKeptNs = 60'000'000'000;

/// The same host, any port.
std::vector<std::byte> without_port(std::vector<std::byte> address) {
  static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));
  const auto port = address.begin() + offsetof(sockaddr_in, sin_port);
  std::fill_n(port, sizeof(in_port_t), std::byte{0});
  return address;
}

const sockaddr* as_sockaddr(const std::vector<std::byte>& address) {
  return reinterpret_cast<const sockaddr*>(address.data());
}

bool is_from_the_host(int error) { return error == 0 || error == ECONNREFUSED; }

}  // namespace

void Knocks::given_up(Bytes address, std::vector<File> connections) {
  if (address.size() < sizeof(sockaddr_in)) return;
  auto place = std::find_if(places_.begin(), places_.end(), [&](const Place& each) {
    return std::equal(address.begin(), address.end(), each.address.begin(), each.address.end());
  });
  if (place == places_.end()) {
    if (places_.size() == kPlacesMax) places_.pop_front();
    places_.push_back({{address.begin(), address.end()}, {}, {}, 0, 0, 0});
    place = std::prev(places_.end());
  }
  for (File& connection : connections) place->connections.push_back(std::move(connection));
}

void Knocks::look(uint64_t now_ns,
                  const std::function<bool(const std::vector<std::byte>&)>& is_wanted) {
  if (now_ns < look_ns_) return;
  look_ns_ = now_ns + kLookNs;
  Connections connections;  // one list for all places
  places_.remove_if([&](Place& place) {
    // The peer has answered the end of these, so it knows.
    std::erase_if(place.connections, [](const File& each) { return !waits_for_its_end(each); });
    if (!is_wanted(place.address)) {
      place.wanted_ns = 0;
      if (place.unwanted_ns == 0) place.unwanted_ns = now_ns;
      place.knock = File();
      return place.connections.empty() || now_ns >= place.unwanted_ns + kKeptNs;
    }
    place.unwanted_ns = 0;
    if (place.wanted_ns == 0) place.wanted_ns = now_ns;
    if (!is_answered(place, now_ns)) return false;
    for (const File& connection : place.connections) reset(connection);
    for (const Connection& attempt : connections.connecting_to(place.address)) shut_down(attempt);
    return true;
  });
}

bool Knocks::is_answered(Place& place, uint64_t now_ns) const {
  pollfd answer{place.knock.get(), POLLOUT, 0};
  if (place.knock.is_open() && ::poll(&answer, 1, 0) == 1) {
    int error = 0;
    socklen_t error_bytes = sizeof error;
    getsockopt(place.knock.get(), SOL_SOCKET, SO_ERROR, &error, &error_bytes);
    place.knock = File();
    if (is_from_the_host(error)) return true;
  }
  const uint64_t pause_ns = std::max(kAgainMinNs, (now_ns - place.wanted_ns) / kAgainPart);
  if (now_ns < place.knocked_ns + pause_ns) return false;
  place.knocked_ns = now_ns;
  return knock(place);
}

/// True: the host has answered already.
bool Knocks::knock(Place& place) const {
  const std::vector<std::byte> from = without_port(from_);
  const int one = 1;
  const linger no_farewell{1, 0};
  place.knock =
      File(socket(as_sockaddr(from)->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int socket = place.knock.get();
  (void)setsockopt(socket, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
  (void)setsockopt(socket, SOL_SOCKET, SO_LINGER, &no_farewell, sizeof no_farewell);
  const auto size = [](const auto& address) { return static_cast<socklen_t>(address.size()); };
  int error = 0;
  if (bind(socket, as_sockaddr(from), size(from)) != 0 ||
      connect(socket, as_sockaddr(place.address), size(place.address)) != 0)
    error = errno;
  // What has not been sent (no route, no free port) would look like an answer at the next look.
  if (error != 0 && error != EINPROGRESS) place.knock = File();
  return is_from_the_host(error);
}

}  // namespace braid::fabric::ofi
