// StagedDomain: its connections over the wire. Lines carry messages to peers: records wait while
// two messages are under way, and then go together. Ways lead to doors of peers, and carry writes.
#include <algorithm>
#include <utility>

#include "base/try.h"
#include "fabric/staged/limits.h"
#include "fabric/staged/parts.h"

namespace braid::fabric::staged {

std::optional<uint32_t> StagedDomain::find_line(Bytes address) {
  std::optional<uint32_t> known;
  lines_.for_each([&](uint32_t index, const Line& line) {
    const bool is_same =
        std::equal(line.address.begin(), line.address.end(), address.begin(), address.end());
    if (is_same && !line.is_abandoned) known = index;
  });
  return known;
}

Result<uint32_t> StagedDomain::line_to(Bytes address, uint8_t version) {
  if (const std::optional<uint32_t> known = find_line(address)) {
    Line& line = lines_.at(*known);
    ++line.users;
    // What a peer's address says of its version counts more than what a stranger's greeting says.
    if (line.connections == 0) line.version = version;
    return *known;
  }
  Line line;
  BRAID_LET(wire, wire_->connect(address));
  line.address.assign(address.begin(), address.end());
  line.wire = wire;
  line.version = version;
  line.users = 1;
  return lines_.add(std::move(line));
}

void StagedDomain::leave_line(uint32_t index) {
  Line& line = lines_.at(index);
  if (--line.users == 0) line.talks_until = polls_ + kFarewellPollsMax;
  close_if_unused(index);
}

/// Ends what is under way on the line. It is not done while another connection uses the line, since
/// that would break the messages of a peer that has come back.
void StagedDomain::abandon_line(uint32_t index, Absence absence) {
  Line& line = lines_.at(index);
  line.has_ended = line.has_ended || absence == Absence::kEnded;
  if (line.abandoned < line.connections) return;
  line.is_abandoned = true;
  wire_->abandon(line.wire, line.has_ended ? Absence::kEnded : absence);
}

void StagedDomain::close_if_unused(uint32_t index) {
  Line& line = lines_.at(index);
  const bool is_silent = !line.has_words() && !line.is_talking &&
                         (line.memory.empty() || line.free.size() == kSendsOfLine);
  if (line.users > 0 || !is_silent) return;
  if (!line.memory.empty()) wire_->remove_region(line.region);
  wire_->disconnect(line.wire);
  lines_.erase(index);
}

void StagedDomain::tell(uint32_t index, const Record& record) {
  Line& line = lines_.at(index);
  line.records.push_back(record);
  if (!std::exchange(line.is_talking, true)) talking_.push_back(index);
}

void StagedDomain::talk() {
  std::erase_if(talking_, [&](uint32_t index) {
    while (talk(index)) {
    }
    Line& line = lines_.at(index);
    if (line.users == 0 && polls_ > line.talks_until) line.records.clear();
    line.is_talking = line.has_words();
    if (!line.is_talking) close_if_unused(index);
    return lines_.find(index) == nullptr || !line.is_talking;
  });
}

/// Sends one message. False: there is nothing to send, or no room now.
bool StagedDomain::talk(uint32_t index) {
  Line& line = lines_.at(index);
  if (!line.has_words() || polls_ < line.silent_until || !has_memory(line) || line.free.empty())
    return false;
  Send send{index, line.free.back(), false, {}};
  size_t count = 0;
  std::vector<std::byte> message = next_message(line, send, count);
  if (line.version >= kSealedVersion)
    sealing_.seal(message, line.address, line.number, ++line.sequence);
  const MutableBytes buffer =
      MutableBytes(line.memory).subspan(send.part * kMessageBytes, message.size());
  std::copy(message.begin(), message.end(), buffer.begin());
  const uint32_t number = sends_.add(std::move(send));
  if (!wire_->post_send(line.wire, line.region, buffer, own(Own::kSend, number))) {
    sends_.erase(number);
    if (line.version >= kSealedVersion) --line.sequence;  // it was not said
    line.silent_until = polls_ + kRefusedPolls;
    return false;
  }
  line.free.pop_back();
  if (count == 0) line.greetings.pop_front();
  line.records.erase(line.records.begin(), line.records.begin() + static_cast<ptrdiff_t>(count));
  return true;
}

bool StagedDomain::has_memory(Line& line) {
  if (!line.memory.empty()) return true;
  line.memory.resize(kSendsOfLine * kMessageBytes);
  const Result<uint32_t> region = wire_->add_region(line.memory, Access::kLocal);
  if (!region.ok()) {
    line.memory.clear();
    return false;
  }
  line.region = region.value();
  for (uint32_t part = 0; part < kSendsOfLine; ++part) line.free.push_back(part);
  return true;
}

/// Makes the next message: a greeting, or `count` records.
std::vector<std::byte> StagedDomain::next_message(const Line& line, Send& send, size_t& count) {
  send.is_asking = !line.greetings.empty();
  if (send.is_asking) return greeting_of(line, peers_.at(line.greetings.front()));
  if (has_address(line.records.front())) {
    send.answers.push_back(line.records.front());
    count = 1;
    return ring_of(line, line.records.front());
  }
  std::vector<std::byte> message;
  append_mark(message, line.version);
  for (; count < line.records.size() &&
         message.size() + kRecordBytes <= kMessageBytes - kTrailerBytes;
       ++count) {
    const Record& record = line.records[count];
    if (has_address(record)) break;
    append(message, record);
    if (record.kind == Kind::kRing || record.kind == Kind::kDone)
      send.answers.push_back(record);
    else
      send.is_asking = true;
  }
  return message;
}

std::vector<std::byte> StagedDomain::greeting_of(const Line& line, const Peer& peer) const {
  std::vector<std::byte> message;
  append_mark(message, line.version);
  append(message, {.kind = Kind::kGreeting, .number = peer.number, .write = peer.lasting_number});
  const Bytes address = wire_->address();
  message.insert(message.end(), address.begin(), address.end());
  return message;
}

/// The message of a ring, with its door; or a refusal, if the ring was taken away meanwhile.
std::vector<std::byte> StagedDomain::ring_of(const Line& line, Record record) const {
  const auto visitor = visitors_.find(record.number);
  record.ok = visitor != visitors_.end() && !visitor->second.has_left;
  std::vector<std::byte> message;
  append_mark(message, line.version);
  append(message, record);
  if (!record.ok) return message;
  std::vector<Bytes> doors = wire_->further_door_addresses(visitor->second.door);
  doors.insert(doors.begin(), wire_->door_address(visitor->second.door));
  append_addresses(message, doors);
  return message;
}

void StagedDomain::said(uint32_t index, bool ok) {
  const Send send = std::move(sends_.at(index));
  sends_.erase(index);
  Line& line = lines_.at(send.line);
  line.free.push_back(send.part);
  if (ok)
    line.silence_polls = 0;
  else
    given_back(send);
  close_if_unused(send.line);
}

/// A message came back undelivered. If it asked for something, the peer may never answer, so
/// nothing more is written to its GPUs in this session. Answers are sent again after a while, since
/// a writer waits for them for ever; a writer ignores an answer that it has received before.
void StagedDomain::given_back(const Send& send) {
  peers_.for_each([&](uint32_t number, const Peer& peer) {
    if (send.is_asking && peer.line == send.line && !peer.is_gone) break_session(number);
  });
  Line& line = lines_.at(send.line);
  line.silence_polls = std::clamp<uint64_t>(2 * line.silence_polls, 1, kSilencePollsMax);
  line.silent_until = polls_ + line.silence_polls;
  if (line.users == 0) return line.records.clear();
  line.records.insert(line.records.begin(), send.answers.begin(), send.answers.end());
  if (line.has_words() && !std::exchange(line.is_talking, true)) talking_.push_back(send.line);
}

/// The line of the peer that a record names; none: there is no such one, or no more.
std::optional<uint32_t> StagedDomain::line_of(const Record& record, const Message& message) {
  if (record.kind == Kind::kGreeting) return find_line(message.addresses.front());
  if (record.kind == Kind::kRing || record.kind == Kind::kDone) {
    const std::optional<uint32_t> peer = peer_of(record.session);
    return peer ? std::optional(peers_.at(*peer).line) : std::nullopt;
  }
  const auto found = visitors_.find(record.session);
  return found != visitors_.end() ? std::optional(found->second.line) : std::nullopt;
}

/// Whether a record without a seal counts. Peers of the version before seals do without. A peer's
/// version is that of its address, which the user of the domain has authenticated: so nobody speaks
/// so in the name of a peer that seals.
bool StagedDomain::may_be_unsealed(const Record& record, const Message& message) {
  const std::optional<uint32_t> line = line_of(record, message);
  if (!line && record.kind != Kind::kGreeting) return false;  // it comes late
  if (line && lines_.at(*line).connections > 0 && lines_.at(*line).version < kSealedVersion)
    return true;
  sealing_.count_unsealed();
  return false;
}

void StagedDomain::handle(const Message& message, uint8_t version) {
  const bool is_sealed = version >= kSealedVersion || !sealing_.has_secret();
  for (const Record& record : message.records) {
    if (!is_sealed && !may_be_unsealed(record, message)) continue;
    switch (record.kind) {
      case Kind::kGreeting: handle_greeting(record, message.addresses.front(), version); break;
      case Kind::kRing: handle_ring(record, message.addresses); break;
      case Kind::kPiece: handle_piece(record); break;
      case Kind::kDone: handle_done(record); break;
      case Kind::kForget: handle_forget(record); break;
      case Kind::kGoodbye: handle_goodbye(record); break;
    }
  }
}

// ---- Ways ----

Result<uint32_t> StagedDomain::way_to(uint32_t peer, Bytes door, std::span<const Bytes> further) {
  BRAID_LET(wire, wire_->connect_all(door, further));
  return ways_.add({peer, wire});
}

size_t StagedDomain::ways(uint32_t number) const {
  const Peer& peer = peers_.at(number);
  const std::optional<uint32_t>& way =
      peer.way ? peer.way : peer.door;  // the ring's, if it is open
  return way ? wire_->ways(ways_.at(*way).wire) : 1;
}

void StagedDomain::leave_way(std::optional<uint32_t>& way) {
  if (!way) return;
  const uint32_t left = *std::exchange(way, std::nullopt);
  ways_.at(left).is_left = true;
  close_if_over(left);
}

void StagedDomain::close_if_over(uint32_t number) {
  const Way& way = ways_.at(number);
  if (!way.is_left || way.pieces > 0) return;
  wire_->disconnect(way.wire);
  ways_.erase(number);
}

/// A peer that has shut its door may still read our memory into its ring. No more pieces are
/// announced, so those bytes go no further. Announced pieces have been read already, but are not
/// answered any more. They have no posting on the wire that could fail, so `break_session` ends
/// them. Ways that were left before may have pieces under way that only this ends: those of a peer
/// that was silent, and has ended now.
void StagedDomain::abandon(uint32_t number, Absence absence) {
  ways_.for_each([&](uint32_t, const Way& way) {
    if (way.peer == number) wire_->abandon(way.wire, absence);
  });
  Peer& peer = peers_.at(number);
  if (absence != Absence::kShut) {
    if (!std::exchange(peer.is_abandoned, true)) ++lines_.at(peer.line).abandoned;
    abandon_line(peer.line, absence);
  }
  break_session(number);
}

}  // namespace braid::fabric::staged
