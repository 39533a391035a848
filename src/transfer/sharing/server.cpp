#include "transfer/sharing/server.h"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "base/try.h"
#include "host/random_number.h"
#include "transfer/failure.h"

namespace braid::transfer {
namespace {

constexpr size_t kQuestionsMax = kSharedMax + 2;  // the board, each buffer, the end of the list

}  // namespace

Result<std::unique_ptr<SharingServer>> SharingServer::open(const Incarnation& self,
                                                           const fabric::Secret& secret,
                                                           const Sharing& sharing) {
  Result<fabric::local::Socket> listener = fabric::local::Socket::listen(sharing_socket(self));
  if (!listener.ok()) return listener.status();
  std::unique_ptr<SharingServer> server(
      new SharingServer(secret, sharing, std::move(listener).value()));  // owner: server
  if (!server->events_.is_open()) return no_more_descriptors("what shared memory is asked for by");
  return server;
}

SharingServer::SharingServer(const fabric::Secret& secret, const Sharing& sharing,
                             fabric::local::Socket listener)
    : secret_(secret),
      sharing_(sharing),
      listener_(std::move(listener)),
      events_(epoll_create1(EPOLL_CLOEXEC)) {
  // Edge-triggered: each new connection is reported once. If this process may open no more
  // descriptors, connections wait in vain.
  watch(listener_.descriptor(), EPOLLIN | EPOLLET);
}

void SharingServer::watch(int descriptor, uint32_t events) const {
  epoll_event event{};
  event.events = events;
  event.data.fd = descriptor;
  epoll_ctl(events_.get(), EPOLL_CTL_ADD, descriptor, &event);
}

bool SharingServer::step(uint64_t now_ns) {
  std::array<epoll_event, 32> ready{};
  const int count = epoll_wait(events_.get(), ready.data(), static_cast<int>(ready.size()), 0);
  for (int i = 0; i < count; ++i) {
    const int descriptor = ready[static_cast<size_t>(i)].data.fd;
    if (descriptor == listener_.descriptor()) accept(now_ns);
    const auto connection = connections_.find(descriptor);
    if (connection != connections_.end() && !answer(connection->second))
      connections_.erase(connection);
  }
  std::erase_if(connections_, [&](const auto& each) { return now_ns >= each.second.end_ns; });
  return count > 0;
}

uint64_t SharingServer::next_deadline_ns() const {
  uint64_t next_ns = std::numeric_limits<uint64_t>::max();
  for (const auto& [descriptor, connection] : connections_)
    next_ns = std::min(next_ns, connection.end_ns);
  return next_ns;
}

void SharingServer::accept(uint64_t now_ns) {
  while (std::optional<fabric::local::Socket> socket = listener_.accept()) {
    Connection connection{std::move(*socket), random_number(), now_ns + kConnectionNs};
    std::array<std::byte, kChallengeBytes> challenge;
    std::memcpy(challenge.data(), &connection.challenge, challenge.size());
    if (connections_.size() >= kConnectionsMax || !connection.socket.send(challenge)) {
      ++refused_;
      continue;
    }
    const int descriptor = connection.socket.descriptor();
    watch(descriptor, EPOLLIN);
    connections_.emplace(descriptor, std::move(connection));
  }
}

/// False: the connection is over.
bool SharingServer::answer(Connection& connection) {
  const std::optional<fabric::local::Packet> packet = connection.socket.receive();
  if (!packet) return !connection.socket.is_closed();
  const auto question = decode_memory_question(packet->bytes, secret_);
  if (!question || question->challenge != connection.challenge ||
      ++connection.questions > kQuestionsMax) {
    ++refused_;
    return false;
  }
  const Sharing::Shared next = sharing_.next(question->after);
  const MemoryAnswer answer{question->nonce, question->wants_board ? SharedMemory{} : next.memory};
  return connection.socket.send(encode(answer, secret_),
                                question->wants_board ? sharing_.board_file() : next.file);
}

}  // namespace braid::transfer
