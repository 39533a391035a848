#include "fabric/local/socket.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "host/process_file.h"

namespace braid::fabric::local {
namespace {

constexpr int kBacklog = 128;
constexpr int kPeerPidfd = 77;  // SO_PEERPIDFD of Linux 6.5, which older headers lack

/// Names that begin with a zero byte are abstract: they are not files.
std::pair<sockaddr_un, socklen_t> address_of(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const size_t size_bytes = std::min(name.size(), sizeof address.sun_path - 1);
  std::memcpy(address.sun_path + 1, name.data(), size_bytes);
  return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + size_bytes)};
}

File new_socket() {
  return File(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

/// Returns the first file that has come. Padding leaves room for a second one, and we must close
/// all of them.
File take_files(msghdr& message) {
  File first;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int number = -1;
      std::memcpy(&number, CMSG_DATA(header) + i * sizeof number, sizeof number);
      File file(number);
      if (!first.is_open()) first = std::move(file);
    }
  }
  return first;
}

Status failure(const char* what) {
  return Status::error(std::string("local: ") + what + ": " + std::strerror(errno));
}

}  // namespace

Result<Socket> Socket::listen(const std::string& name) {
  Socket socket(new_socket());
  const auto [address, size_bytes] = address_of(name);
  if (!socket.file_.is_open() ||
      ::bind(socket.file_.get(), reinterpret_cast<const sockaddr*>(&address), size_bytes) != 0 ||
      ::listen(socket.file_.get(), kBacklog) != 0)
    return failure("no socket to listen at");
  return socket;
}

Result<std::optional<Socket>> Socket::connect(const std::string& name) {
  Socket socket(new_socket());
  if (!socket.file_.is_open()) return failure("no socket to connect by");
  const auto [address, size_bytes] = address_of(name);
  if (::connect(socket.file_.get(), reinterpret_cast<const sockaddr*>(&address), size_bytes) != 0)
    return std::optional<Socket>();
  if (!socket.identify())
    return Status::error("local: the peer is another user's process",
                         "Run both as one user, or use a provider of libfabric");
  return std::optional(std::move(socket));
}

bool Socket::identify() {
  ucred who{};
  socklen_t size_bytes = sizeof who;
  if (getsockopt(file_.get(), SOL_SOCKET, SO_PEERCRED, &who, &size_bytes) != 0) return false;
  process_ = who.pid;
  return who.uid == geteuid();
}

/// By the socket where the kernel can: a process of another PID namespace has no number here, and a
/// number may be another process's by now.
File Socket::process_file() const {
  int number = -1;
  socklen_t size_bytes = sizeof number;
  if (getsockopt(file_.get(), SOL_SOCKET, kPeerPidfd, &number, &size_bytes) == 0)
    return File(number);
  return errno == ENOPROTOOPT ? braid::process_file(process_) : File();
}

std::optional<Socket> Socket::accept() {
  for (;;) {
    Socket socket(File(accept4(file_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)));
    if (!socket.file_.is_open()) return std::nullopt;
    if (socket.identify()) return socket;
  }
}

bool Socket::send(Bytes bytes, int file) {
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (file >= 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &file, sizeof file);
  }
  return sendmsg(file_.get(), &message, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
}

std::optional<Packet> Socket::receive() {
  Packet packet;
  packet.bytes.resize(kPacketBytesMax);
  iovec part{packet.bytes.data(), packet.bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t size_bytes = recvmsg(file_.get(), &message, MSG_CMSG_CLOEXEC);
  // The other end was closed before it had read everything. What it sent is there still.
  if (size_bytes < 0 && errno == ECONNRESET)
    size_bytes = recvmsg(file_.get(), &message, MSG_CMSG_CLOEXEC);
  if (size_bytes >= 0) packet.file = take_files(message);
  if (size_bytes <= 0) {
    is_closed_ = is_closed_ || size_bytes == 0 || (errno != EAGAIN && errno != EINTR);
    return std::nullopt;
  }
  packet.bytes.resize(static_cast<size_t>(size_bytes));
  return packet;
}

}  // namespace braid::fabric::local
