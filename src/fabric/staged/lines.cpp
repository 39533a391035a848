// StagedDomain: what it says to peers, as messages of the wire. Records wait while two messages are
// under way, and then go together.
#include <algorithm>
#include <utility>

#include "base/try.h"
#include "fabric/staged/limits.h"
#include "fabric/staged/parts.h"

namespace braid::fabric::staged {

Result<uint32_t> StagedDomain::line_to(Bytes address) {
  std::optional<uint32_t> known;
  lines_.for_each([&](uint32_t index, const Line& line) {
    if (std::equal(line.address.begin(), line.address.end(), address.begin(), address.end()))
      known = index;
  });
  if (known) {
    ++lines_.at(*known).users;
    return *known;
  }
  Line line;
  BRAID_LET(wire, wire_->connect(address));
  line.address.assign(address.begin(), address.end());
  line.wire = wire;
  line.users = 1;
  return lines_.add(std::move(line));
}

void StagedDomain::leave_line(uint32_t index) {
  --lines_.at(index).users;
  close_if_unused(index);
}

void StagedDomain::close_if_unused(uint32_t index) {
  Line& line = lines_.at(index);
  const bool is_silent = line.records.empty() && line.greeting.empty() && !line.is_talking &&
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
    line.is_talking = !line.records.empty() || !line.greeting.empty();
    if (!line.is_talking) close_if_unused(index);
    return lines_.find(index) == nullptr || !line.is_talking;
  });
}

/// One message. False: there is nothing more to say, or no room to say it now.
bool StagedDomain::talk(uint32_t index) {
  Line& line = lines_.at(index);
  if (line.memory.empty()) {
    line.memory.resize(kSendsOfLine * kMessageBytes);
    const Result<uint32_t> region = wire_->add_region(line.memory, Access::kLocal);
    if (!region.ok()) {
      line.memory.clear();
      return false;
    }
    line.region = region.value();
    for (uint32_t part = 0; part < kSendsOfLine; ++part) line.free.push_back(part);
  }
  if (line.free.empty() || (line.records.empty() && line.greeting.empty())) return false;
  std::vector<std::byte> message = line.greeting;
  size_t count = 0;
  if (message.empty()) {
    append_mark(message);
    for (; count < line.records.size() && message.size() + kRecordBytes <= kMessageBytes; ++count)
      append(message, line.records[count]);
  }
  const uint32_t part = line.free.back();
  const MutableBytes buffer =
      MutableBytes(line.memory).subspan(part * kMessageBytes, message.size());
  std::copy(message.begin(), message.end(), buffer.begin());
  const uint32_t send = sends_.add({index, part});
  if (!wire_->post_send(line.wire, line.region, buffer, own(Own::kSend, send))) {
    sends_.erase(send);
    return false;
  }
  line.free.pop_back();
  if (count == 0) line.greeting.clear();
  line.records.erase(line.records.begin(), line.records.begin() + static_cast<ptrdiff_t>(count));
  return true;
}

/// What a peer may not have heard, it will not answer: nothing more is written to its GPUs.
void StagedDomain::said(uint32_t index, bool ok) {
  const Send send = sends_.at(index);
  sends_.erase(index);
  lines_.at(send.line).free.push_back(send.part);
  if (!ok)
    for (uint32_t peer = 0; peer < peers_.size(); ++peer)
      if (peers_[peer].line == send.line && !peers_[peer].is_gone) break_session(peer);
  close_if_unused(send.line);
}

void StagedDomain::handle(const Message& message) {
  for (const Record& record : message.records) {
    switch (record.kind) {
      case Kind::kGreeting: handle_greeting(record, message.address); break;
      case Kind::kRing: handle_ring(record); break;
      case Kind::kPiece: handle_piece(record); break;
      case Kind::kDone: handle_done(record); break;
      case Kind::kForget: handle_forget(record); break;
      case Kind::kGoodbye: handle_goodbye(record); break;
    }
  }
}

}  // namespace braid::fabric::staged
