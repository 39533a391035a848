#include "fabric/parcel.h"

#include <sys/socket.h>

#include <cerrno>

namespace braid::fabric::test {
namespace {

[[noreturn]] void fail() {
  throw std::runtime_error(std::string("the other process does not answer: ") +
                           (errno != 0 ? std::strerror(errno) : "it has ended"));
}

void send_all(int socket, Bytes bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) fail();
    bytes = bytes.subspan(static_cast<size_t>(sent));
  }
}

void receive_all(int socket, MutableBytes bytes) {
  while (!bytes.empty()) {
    errno = 0;
    const ssize_t got = ::recv(socket, bytes.data(), bytes.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) fail();
    bytes = bytes.subspan(static_cast<size_t>(got));
  }
}

/// A message of one byte, with room for a file.
struct FileMessage {
  FileMessage() {
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
  }
  char byte = 0;
  iovec part{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
};

}  // namespace

void send_parcel(int socket, const Parcel& parcel) {
  send_all(socket, Parcel().put_bytes(parcel.all()).all());
}

Parcel receive_parcel(int socket) {
  size_t size_bytes = 0;
  receive_all(socket, std::as_writable_bytes(std::span(&size_bytes, 1)));
  std::vector<std::byte> bytes(size_bytes);
  receive_all(socket, bytes);
  return Parcel(std::move(bytes));
}

void send_file(int socket, int file) {
  FileMessage sent;
  cmsghdr* header = CMSG_FIRSTHDR(&sent.message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof file);
  std::memcpy(CMSG_DATA(header), &file, sizeof file);
  if (sendmsg(socket, &sent.message, MSG_NOSIGNAL) != 1) fail();
}

File receive_file(int socket) {
  FileMessage received;
  errno = 0;
  if (recvmsg(socket, &received.message, MSG_CMSG_CLOEXEC) != 1) fail();
  const cmsghdr* header = CMSG_FIRSTHDR(&received.message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) fail();
  int file = -1;
  std::memcpy(&file, CMSG_DATA(header), sizeof file);
  return File(file);
}

}  // namespace braid::fabric::test
