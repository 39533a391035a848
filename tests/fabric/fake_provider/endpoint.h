// One end of the fake network: what is posted to it, and what comes in.
#pragma once

#include <rdma/fi_cm.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>
#include <sys/uio.h>

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "fabric/fake_provider/nic.h"
#include "fabric/fake_provider/port.h"
#include "fabric/fake_provider/queues.h"

namespace braid::fabric::fake {

/// Memory in parts, each with the descriptor of its registration.
struct Gathered {
  struct Part {
    std::byte* memory;
    size_t size_bytes;
    const void* descriptor;
  };
  std::vector<Part> parts;
  size_t size_bytes = 0;

  void add(const void* memory, size_t size_bytes, const void* descriptor);
  void copy_out(size_t offset_bytes, std::span<std::byte> into) const;
  void copy_in(size_t offset_bytes, std::span<const std::byte> from);
};

struct Posting {
  Kind kind = Kind::kSend;
  std::string to;
  Gathered memory;
  uint64_t address = 0;  // at the target
  uint64_t key = 0;
  std::optional<uint32_t> immediate;
  void* context = nullptr;
  uint64_t flags = 0;        // of its completion
  bool is_injected = false;  // the memory was copied, and nobody is told of its end
  std::vector<std::byte> copy;
  bool needs_descriptors = true;

  // While it is under way.
  uint64_t sequence = 0;
  uint64_t answers = 0;          // of a kReadReply
  std::vector<uint32_t> unsent;  // pieces, in the order in which they go
  size_t piece_bytes = 0;
  uint32_t pieces = 0;
  size_t landed_bytes = 0;  // of a kRead
};

class Endpoint : public fid_ep, public Nic::Member {
 public:
  enum class State : uint8_t { kIdle, kConnecting, kConnected, kBroken };

  Endpoint(Nic& nic, const fi_info& info);
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;
  ~Endpoint() override;

  // Set by whoever binds it.
  CompletionQueue* sends_to = nullptr;
  CompletionQueue* receives_to = nullptr;
  EventQueue* events = nullptr;
  fid_av* addresses = nullptr;

  Nic& nic;
  Port port;
  std::vector<std::byte> name;  // as fi_getname gives it
  std::string peer;             // of connections
  State state = State::kIdle;

  // All with the NIC's mutex held.
  /// 0, -FI_EAGAIN, or what is wrong.
  int post(Posting posting);
  int post_receive(const Gathered& buffer, void* context);
  void connect(const std::string& listener, std::span<const std::byte> data);
  void accept(std::span<const std::byte> data);
  /// Everything ends, and the peer is told.
  void disconnect();
  /// Its memory stays until the NIC ends: rxm of libfabric 1.17 posts receives to connections that
  /// it has closed, when it is closed itself with messages that nobody has received.
  void close();
  bool is_closed() const { return is_closed_; }
  /// As a link that fails: both ends notice by what they have under way.
  void break_connection() { break_off(Outcome::kPeerGone); }
  bool progress() override;
  bool is_waiting() const override { return !postings_.empty() || state == State::kConnecting; }
  int descriptor() const override { return port.descriptor(); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Receive {
    Gathered buffer;
    void* context;
  };
  struct Incoming {
    uint32_t landed_pieces = 0;
    bool has_failed = false;
    std::vector<std::byte> message;
  };
  struct Arrival {
    std::string from;
    Header header;
    std::vector<std::byte> message;
  };
  using Number = std::pair<std::string, uint64_t>;

  // endpoint.cpp: postings
  bool send_pieces();
  Sent send_piece(uint64_t number, Posting& posting);
  void end(uint64_t number, Outcome outcome);
  void complete(const Posting& posting, Outcome outcome);
  void break_off(Outcome outcome);
  void peer_is_gone(const std::string& whom);
  void ping();
  bool is_covered(const Gathered& memory) const;

  // arrivals.cpp
  bool receive_all();
  void handle(Packet& packet);
  void handle_piece(Packet& packet);
  bool land(const Packet& packet, Incoming& incoming);
  void landed(const Packet& packet, Incoming& incoming);
  void read_from_here(const Packet& packet);
  void handle_reply(const Packet& packet);
  void handle_connection(const Packet& packet);
  void refuse(const Packet& packet, Incoming& incoming);
  void order(Arrival arrival);
  void deliver();
  bool deliver(Arrival& arrival);
  void acknowledge(const std::string& to, uint64_t posting, Outcome outcome);

  bool is_closed_ = false;
  bool is_alone_ = false;  // the peer is gone, and the program was told
  size_t postings_max_;
  size_t receives_max_;
  uint64_t next_posting_ = 1;
  uint64_t next_sequence_ = 0;      // of messages that go out
  uint64_t expected_sequence_ = 0;  // of messages that come in
  std::map<uint64_t, Posting> postings_;
  std::map<Number, Incoming> incoming_;
  std::map<uint64_t, Arrival> early_;  // messages before their turn
  std::deque<Arrival> arrivals_;       // that no receive has taken
  std::deque<Receive> receives_;
  Clock::time_point pinged_ = Clock::now();
};

}  // namespace braid::fabric::fake
