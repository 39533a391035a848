#include "fabric/fake_provider/port.h"

#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace braid::fabric::fake {
namespace {

constexpr size_t kPacketBytesMax = 64 << 10;
/// What a peer that is stopped has not read counts for the socket that sent it: there is to be room
/// for the others then.
constexpr int kUnreadBytesMax = 4 << 20;

struct Place {
  sockaddr_un address{};
  socklen_t size_bytes = 0;
};

Place place_of(const std::string& name) {
  Place place;
  place.address.sun_family = AF_UNIX;
  const size_t length = std::min(name.size(), sizeof place.address.sun_path - 1);
  std::memcpy(place.address.sun_path + 1, name.data(), length);
  place.size_bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  return place;
}

}  // namespace

Port::~Port() { close(); }

void Port::close() {
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
}

bool Port::open(const std::string& name) {
  if (socket_ < 0) {
    socket_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    setsockopt(socket_, SOL_SOCKET, SO_SNDBUF, &kUnreadBytesMax, sizeof kUnreadBytesMax);
  }
  const Place place = place_of(name);
  if (bind(socket_, reinterpret_cast<const sockaddr*>(&place.address), place.size_bytes) != 0)
    return false;
  name_ = name;
  return true;
}

Sent Port::send(const std::string& to, const Header& header, std::span<const std::byte> bytes) {
  Place place = place_of(to);
  Header copy = header;
  iovec parts[] = {{&copy, sizeof copy}, {const_cast<std::byte*>(bytes.data()), bytes.size()}};
  msghdr message{};
  message.msg_name = &place.address;
  message.msg_namelen = place.size_bytes;
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  if (sendmsg(socket_, &message, MSG_NOSIGNAL) >= 0) return Sent::kYes;
  return errno == ECONNREFUSED ? Sent::kGone : Sent::kFull;
}

void Port::queue(const std::string& to, const Header& header, std::span<const std::byte> bytes) {
  queued_.push_back({to, header, {bytes.begin(), bytes.end()}});
  flush();
}

void Port::flush() {
  std::erase_if(queued_, [&](const Packet& packet) {
    return send(packet.from, packet.header, packet.bytes) != Sent::kFull;
  });
}

bool Port::receive(Packet& packet) {
  thread_local std::array<std::byte, kPacketBytesMax> buffer;
  sockaddr_un from{};
  socklen_t from_bytes = sizeof from;
  const ssize_t count = recvfrom(socket_, buffer.data(), buffer.size(), 0,
                                 reinterpret_cast<sockaddr*>(&from), &from_bytes);
  constexpr size_t kBeforeName = offsetof(sockaddr_un, sun_path) + 1;
  if (count < static_cast<ssize_t>(sizeof(Header)) || from_bytes < kBeforeName) return false;
  packet.from.assign(from.sun_path + 1, from_bytes - kBeforeName);
  std::memcpy(&packet.header, buffer.data(), sizeof(Header));
  packet.bytes.assign(buffer.begin() + sizeof(Header), buffer.begin() + count);
  return true;
}

}  // namespace braid::fabric::fake
