// One place on the fake network: a Unix datagram socket in the abstract name space.
#pragma once

#include <deque>
#include <span>
#include <string>

#include "fabric/fake_provider/packet.h"

namespace braid::fabric::fake {

enum class Sent : uint8_t { kYes, kFull, kGone };

class Port {
 public:
  Port() = default;
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;
  ~Port();

  /// False: somebody has this name.
  bool open(const std::string& name);
  void close();
  const std::string& name() const { return name_; }
  int descriptor() const { return socket_; }

  Sent send(const std::string& to, const Header& header, std::span<const std::byte> bytes);
  /// Goes out once there is room. Whoever is gone is not told.
  void queue(const std::string& to, const Header& header, std::span<const std::byte> bytes = {});
  void flush();
  bool receive(Packet& packet);

 private:
  int socket_ = -1;
  std::string name_;
  std::deque<Packet> queued_;  // `from` is whom it goes to
};

}  // namespace braid::fabric::fake
