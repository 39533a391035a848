#include "transfer/directory/socket.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "base/try.h"
#include "transfer/failure.h"

namespace braid::transfer {
namespace {

constexpr int kBacklog = 128;

/// kNone: it says nothing of a peer, as an address that another process listens at.
Cause cause_of_errno() {
  switch (errno) {
    case ECONNREFUSED:
    case ENOENT: return Cause::kNoSegment;
    case EMFILE:
    case ENFILE:
    case ENOBUFS:
    case ENOMEM: return Cause::kTooMuch;
    case ECONNRESET:
    case ECONNABORTED:
    case EPIPE:
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case EHOSTDOWN:
    case ENETUNREACH:
    case ENETDOWN:
    case ENETRESET: return Cause::kPeerLost;
    default: return Cause::kNone;
  }
}

Status system_error(const std::string& what) {
  const Cause cause = cause_of_errno();
  return failure(cause, what + ": " + std::strerror(errno));
}

Result<Descriptor> new_socket(int family) {
  Descriptor socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.is_open()) return system_error("there is no socket");
  return socket;
}

Result<AddressList> look_up(const HostAndPort& at, AddressUse use) {
  Result<AddressList> found = look_up_host(at.host, at.port, use);
  return found.ok() ? std::move(found) : failure(Cause::kNoSegment, found.status().message());
}

Status late(const std::string& what) {
  return failure(Cause::kDeadline, what + " within the time limit");
}

Result<sockaddr_un> unix_address(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    return Status::error("the path " + path + " is too long for a socket");
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

Result<Descriptor> connect_to(const addrinfo& at, const std::string& what, WaitEnd end) {
  BRAID_LET(socket, new_socket(at.ai_family));
  if (connect(socket.get(), at.ai_addr, at.ai_addrlen) != 0 && errno != EINPROGRESS)
    return system_error(what);
  if (!wait_for(socket.get(), Awaited::kWriting, end)) return late(what);
  socklen_t size_bytes = sizeof errno;
  getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &errno, &size_bytes);
  if (errno != 0) return system_error(what);
  return std::move(socket);
}

/// `error`: the errno of the call that has failed.
Result<Descriptor> listen_at(const addrinfo& at, const std::string& what, int& error) {
  Result<Descriptor> socket = new_socket(at.ai_family);
  error = errno;
  if (!socket.ok()) return socket;
  const int yes = 1, descriptor = socket.value().get();
  setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (bind(descriptor, at.ai_addr, at.ai_addrlen) == 0 && listen(descriptor, kBacklog) == 0)
    return socket;
  error = errno;
  return system_error(what);
}

/// The caller holds the folder's lock, so no process is between making a socket and listening
/// there.
void remove_sockets_of_ended_processes(const std::string& folder) {
  std::error_code wrong;
  for (const auto& entry : std::filesystem::directory_iterator(folder, wrong)) {
    const bool may_be_ours =
        entry.is_socket(wrong) && check_bare_name(entry.path().filename().string()).ok();
    if (!may_be_ours) continue;
    const Result<bool> is_live = is_listened_at(entry.path().string());
    if (is_live.ok() && !is_live.value()) unlink(entry.path().c_str());
  }
}

bool is_absent_here(int error) { return error == EAFNOSUPPORT || error == EADDRNOTAVAIL; }

Status send_all(int socket, Bytes bytes, uint64_t end_ns) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) bytes = bytes.subspan(static_cast<size_t>(sent));
    if (sent > 0 || errno == EINTR) continue;
    if (errno != EAGAIN) return system_error("the peer has closed the connection");
    if (!wait_for(socket, Awaited::kWriting, end_ns)) return late("the peer took no question");
  }
  return {};
}

Status receive_all(int socket, MutableBytes bytes, uint64_t end_ns) {
  while (!bytes.empty()) {
    const ssize_t got = recv(socket, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got == 0)
      return failure(Cause::kNoSegment, "the peer has closed the connection without an answer",
                     "It may be an older braid with another secret, or speak another protocol");
    if (got > 0) bytes = bytes.subspan(static_cast<size_t>(got));
    if (got > 0 || errno == EINTR) continue;
    if (errno != EAGAIN) return system_error("the connection has broken");
    if (!wait_for(socket, Awaited::kReading, end_ns)) return late("the peer has not answered");
  }
  return {};
}

}  // namespace

/// A name may have addresses that this host has not: "localhost" has one of IPv6 first.
Result<Descriptor> listen_at(const HostAndPort& at, uint16_t& port) {
  BRAID_LET(addresses, look_up(at, AddressUse::kListen));
  const std::string what = "cannot listen at " + at.host + ":" + std::to_string(at.port);
  const addrinfo* each = addresses.get();
  int error = 0;
  Result<Descriptor> listener = listen_at(*each, what, error);
  while (!listener.ok() && is_absent_here(error) && (each = each->ai_next) != nullptr)
    listener = listen_at(*each, what, error);
  if (!listener.ok()) return listener;
  sockaddr_storage taken{};
  socklen_t size_bytes = sizeof taken;
  getsockname(listener.value().get(), reinterpret_cast<sockaddr*>(&taken), &size_bytes);
  port = ntohs(taken.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(taken).sin6_port
                                           : reinterpret_cast<const sockaddr_in&>(taken).sin_port);
  return listener;
}

Result<bool> is_listened_at(const std::string& path) {
  BRAID_LET(address, unix_address(path));
  BRAID_LET(socket, new_socket(AF_UNIX));
  const auto* at = reinterpret_cast<const sockaddr*>(&address);
  if (connect(socket.get(), at, sizeof address) == 0 || errno == EAGAIN) return true;
  if (errno == ECONNREFUSED || errno == ENOENT) return false;
  return system_error("nobody can see whether a process listens at " + path);
}

Result<Descriptor> listen_at_path(const std::string& path) {
  BRAID_LET(address, unix_address(path));
  // A lock on the folder: only one process at a time looks for a socket and replaces it.
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  const Descriptor alone(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  while (flock(alone.get(), LOCK_EX) != 0)
    if (errno != EINTR) return system_error("cannot lock the folder " + folder);
  BRAID_LET(is_taken, is_listened_at(path));
  if (is_taken)
    return Status::error("another process has the name of " + path, "Choose another name");
  unlink(path.c_str());
  remove_sockets_of_ended_processes(folder);
  BRAID_LET(socket, new_socket(AF_UNIX));
  if (bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      listen(socket.get(), kBacklog) != 0)
    return system_error("cannot listen at " + path);
  return std::move(socket);
}

Result<Descriptor> connect_to(const HostAndPort& at, WaitEnd end) {
  BRAID_LET(addresses, look_up(at, AddressUse::kConnect));
  return connect_to(at, addresses, end);
}

Result<Descriptor> connect_to(const HostAndPort& at, const AddressList& addresses, WaitEnd end) {
  const std::string what = "cannot connect to " + at.host + ":" + std::to_string(at.port);
  Status last = Status::error("no address");
  for (const addrinfo* each = addresses.get(); each != nullptr; each = each->ai_next) {
    Result<Descriptor> connected = connect_to(*each, what, end);
    if (connected.ok()) return connected;
    last = connected.status();
    const Cause cause = cause_of(last);
    if (cause == Cause::kTooMuch || cause == Cause::kDeadline) break;  // for the others too
  }
  return last;
}

/// A name that cannot be looked up has the same cause as a refusal.
bool is_refused(const HostAndPort& at, uint64_t end_ns) {
  return look_up(at, AddressUse::kConnect).ok() &&
         cause_of(connect_to(at, end_ns).status()) == Cause::kNoSegment;
}

/// If the listener's queue is full, it tries again after a pause: nothing tells when there is room.
Result<Descriptor> connect_to_path(const std::string& path, uint64_t end_ns) {
  constexpr unsigned kPauseUs = 1000;
  BRAID_LET(address, unix_address(path));
  BRAID_LET(socket, new_socket(AF_UNIX));
  while (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    if (errno != EAGAIN && errno != EINTR) return system_error("nobody listens at " + path);
    if (monotonic_ns() >= end_ns) return late("who listens at " + path + " has taken no question");
    usleep(kPauseUs);
  }
  return std::move(socket);
}

bool wait_for(int socket, Awaited what, WaitEnd end) {
  const short events = what == Awaited::kReading ? POLLIN : POLLOUT;
  for (;;) {
    const int look_ms = end.look_ms(monotonic_ns());
    if (look_ms == 0) return false;
    pollfd awaited{socket, events, 0};
    const int ready = poll(&awaited, 1, look_ms);
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

Result<std::vector<std::byte>> ask(const Descriptor& socket, Bytes question, size_t bytes_max,
                                   uint64_t end_ns) {
  BRAID_TRY(send_all(socket.get(), frame(question), end_ns));
  std::byte length[kLengthBytes];
  BRAID_TRY(receive_all(socket.get(), length, end_ns));
  const size_t size_bytes = read_length(length);
  if (size_bytes > bytes_max)
    return failure(Cause::kNoSegment, "what listens there is no engine of braid",
                   "Another program has the port: look at the name again");
  std::vector<std::byte> answer(size_bytes);
  BRAID_TRY(receive_all(socket.get(), answer, end_ns));
  return answer;
}

uint32_t read_length(Bytes four) {
  uint32_t length = 0;
  Reader(four).number(length);
  return length;
}

std::vector<std::byte> frame(Bytes body) {
  Writer writer;
  writer.number(static_cast<uint32_t>(body.size()));
  std::vector<std::byte> bytes = writer.take();
  bytes.insert(bytes.end(), body.begin(), body.end());
  return bytes;
}

}  // namespace braid::transfer
