// Endpoint: what comes in.
#include <rdma/fi_errno.h>

#include <cstring>

#include "fabric/fake_provider/endpoint.h"

namespace braid::fabric::fake {
namespace {

constexpr size_t kPacketsInALook = 64;

}  // namespace

bool Endpoint::receive_all() {
  Packet packet;
  size_t count = 0;
  for (; count < kPacketsInALook && port.receive(packet); ++count) handle(packet);
  return count > 0;
}

void Endpoint::handle(Packet& packet) {
  const Kind kind = packet.header.kind;
  if (kind == Kind::kPing) return;
  if (kind >= Kind::kConnect) return handle_connection(packet);
  if (nic.manners.has_connections && (state != State::kConnected || packet.from != peer)) return;
  if (kind == Kind::kAck) return end(packet.header.answers, packet.header.outcome);
  if (kind == Kind::kRead) return read_from_here(packet);
  if (kind == Kind::kReadReply) return handle_reply(packet);
  handle_piece(packet);
}

/// Each piece is checked as it comes, as a NIC does.
void Endpoint::handle_piece(Packet& packet) {
  const Number number{packet.from, packet.header.posting};
  Incoming& incoming = incoming_[number];
  if (!incoming.has_failed && !land(packet, incoming)) return refuse(packet, incoming);
  if (++incoming.landed_pieces < packet.header.pieces) return;
  Incoming whole = std::move(incoming);
  incoming_.erase(number);
  if (!whole.has_failed) landed(packet, whole);
}

bool Endpoint::land(const Packet& packet, Incoming& incoming) {
  const Header& header = packet.header;
  if (header.kind == Kind::kSend) {
    incoming.message.resize(header.size_bytes);
    std::copy(packet.bytes.begin(), packet.bytes.end(),
              incoming.message.begin() + static_cast<ptrdiff_t>(header.offset_bytes));
    return true;
  }
  std::byte* target =
      nic.regions.find(header.key, header.address, header.size_bytes, FI_REMOTE_WRITE);
  if (target == nullptr) return false;
  std::memcpy(target + header.offset_bytes, packet.bytes.data(), packet.bytes.size());
  return true;
}

void Endpoint::refuse(const Packet& packet, Incoming& incoming) {
  incoming.has_failed = true;
  acknowledge(packet.from, packet.header.posting, Outcome::kRemoteAccess);
  if (nic.manners.has_connections) return break_off(Outcome::kFlushed);
  if (++incoming.landed_pieces == packet.header.pieces)
    incoming_.erase({packet.from, packet.header.posting});
}

void Endpoint::landed(const Packet& packet, Incoming& incoming) {
  const Header& header = packet.header;
  if (header.kind == Kind::kSend) return order({packet.from, header, std::move(incoming.message)});
  if (header.has_immediate == 0) return acknowledge(packet.from, header.posting, Outcome::kOk);
  arrivals_.push_back({packet.from, header, {}});
  deliver();
}

void Endpoint::acknowledge(const std::string& to, uint64_t posting, Outcome outcome) {
  Header header;
  header.kind = Kind::kAck;
  header.outcome = outcome;
  header.answers = posting;
  port.queue(to, header);
}

// ---- Messages and immediates ----

void Endpoint::order(Arrival arrival) {
  if (!nic.manners.orders_messages) {
    arrivals_.push_back(std::move(arrival));
    return deliver();
  }
  early_.emplace(arrival.header.sequence, std::move(arrival));
  for (auto next = early_.begin(); next != early_.end() && next->first == expected_sequence_;
       next = early_.begin()) {
    arrivals_.push_back(std::move(next->second));
    early_.erase(next);
    ++expected_sequence_;
  }
  deliver();
}

void Endpoint::deliver() {
  while (!arrivals_.empty() && deliver(arrivals_.front())) {
    acknowledge(arrivals_.front().from, arrivals_.front().header.posting, Outcome::kOk);
    arrivals_.pop_front();
  }
}

/// False: it waits for a receive.
bool Endpoint::deliver(Arrival& arrival) {
  const bool is_message = arrival.header.kind == Kind::kSend;
  const bool takes_receive = is_message || nic.manners.immediates_take_receives;
  if (takes_receive && receives_.empty()) return false;
  CompletionQueue::Entry entry;
  entry.data.flags = is_message ? FI_RECV | FI_MSG : FI_REMOTE_WRITE | FI_RMA;
  if (arrival.header.has_immediate != 0) {
    entry.data.flags |= FI_REMOTE_CQ_DATA;
    entry.data.data = arrival.header.immediate;
  }
  if (takes_receive) {
    Receive& receive = receives_.front();
    entry.data.op_context = receive.context;
    entry.data.len = arrival.message.size();
    if (arrival.message.size() > receive.buffer.size_bytes ||
        (nic.needs_descriptors && !is_covered(receive.buffer)))
      entry.outcome = Outcome::kLocalProtection;
    else if (is_message)
      receive.buffer.copy_in(0, arrival.message);
    receives_.pop_front();
  }
  receives_to->push(entry);
  return true;
}

// ---- Reads ----

void Endpoint::read_from_here(const Packet& packet) {
  const Header& header = packet.header;
  std::byte* source =
      nic.regions.find(header.key, header.address, header.size_bytes, FI_REMOTE_READ);
  if (source == nullptr) {
    acknowledge(packet.from, header.posting, Outcome::kRemoteAccess);
    if (nic.manners.has_connections) break_off(Outcome::kFlushed);
    return;
  }
  Posting reply;
  reply.kind = Kind::kReadReply;
  reply.to = packet.from;
  reply.memory.add(source, header.size_bytes, nullptr);
  reply.answers = header.posting;
  reply.needs_descriptors = false;
  post(std::move(reply));
}

void Endpoint::handle_reply(const Packet& packet) {
  const Header& header = packet.header;
  const auto found = postings_.find(header.answers);
  if (found == postings_.end()) return;
  found->second.memory.copy_in(header.offset_bytes, packet.bytes);
  found->second.landed_bytes += packet.bytes.size();
  if (found->second.landed_bytes < header.size_bytes) return;
  acknowledge(packet.from, header.posting, Outcome::kOk);
  end(header.answers, Outcome::kOk);
}

// ---- Connections ----

void Endpoint::connect(const std::string& listener, std::span<const std::byte> data) {
  state = State::kConnecting;
  peer = listener;
  Header header;
  header.kind = Kind::kConnect;
  std::vector<std::byte> message = name;
  message.insert(message.end(), data.begin(), data.end());
  port.queue(listener, header, message);
  nic.wake();
}

void Endpoint::accept(std::span<const std::byte> data) {
  state = State::kConnected;
  Header header;
  header.kind = Kind::kAccept;
  port.queue(peer, header, data);
  EventQueue::Event event;
  event.number = FI_CONNECTED;
  event.about = &fid;
  events->push(std::move(event));
  nic.wake();
}

void Endpoint::disconnect() {
  if (state == State::kConnected || state == State::kBroken) {
    Header header;
    header.kind = Kind::kDisconnect;
    port.queue(peer, header);
    state = State::kBroken;
  }
  break_off(Outcome::kFlushed);
}

void Endpoint::handle_connection(const Packet& packet) {
  if (packet.header.kind == Kind::kBreak && packet.from == peer)
    return break_off(Outcome::kPeerGone);
  EventQueue::Event event;
  event.about = &fid;
  if (packet.header.kind == Kind::kAccept && state == State::kConnecting) {
    state = State::kConnected;
    peer = packet.from;
    event.number = FI_CONNECTED;
  } else if (packet.header.kind == Kind::kReject && state == State::kConnecting) {
    break_off(Outcome::kFlushed);
    event.error = FI_ECONNREFUSED;
  } else if (packet.header.kind == Kind::kDisconnect && packet.from == peer) {
    break_off(Outcome::kFlushed);
    is_alone_ = true;
    event.number = FI_SHUTDOWN;
  } else {
    return;
  }
  event.data = packet.bytes;
  events->push(std::move(event));
}

}  // namespace braid::fabric::fake
