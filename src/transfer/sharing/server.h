// Hands out the memory that this engine shares (messages.h). It never blocks and owns no thread;
// its driver waits for its one descriptor.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "fabric/local/socket.h"
#include "fabric/seal.h"
#include "transfer/directory/socket.h"
#include "transfer/sharing/messages.h"

namespace braid::transfer {

class SharingServer {
 public:
  static constexpr uint64_t kConnectionNs = 5'000'000'000;
  static constexpr size_t kConnectionsMax = 64;

  /// `sharing` must outlive the server.
  static Result<std::unique_ptr<SharingServer>> open(const Incarnation& self,
                                                     const fabric::Secret& secret,
                                                     const Sharing& sharing);

  int descriptor() const { return events_.get(); }
  bool step(uint64_t now_ns);
  uint64_t next_deadline_ns() const;
  /// Peers refused: they have no secret, send something that is no question, or are too many.
  uint64_t refused() const { return refused_; }

 private:
  struct Connection {
    fabric::local::Socket socket;
    uint64_t challenge = 0;
    uint64_t end_ns = 0;
    size_t questions = 0;
  };

  SharingServer(const fabric::Secret& secret, const Sharing& sharing,
                fabric::local::Socket listener);
  void watch(int descriptor, uint32_t events) const;
  void accept(uint64_t now_ns);
  bool answer(Connection& connection);

  fabric::Secret secret_;
  const Sharing& sharing_;
  fabric::local::Socket listener_;
  Descriptor events_;  // an epoll
  std::map<int, Connection> connections_;
  uint64_t refused_ = 0;
};

}  // namespace braid::transfer
