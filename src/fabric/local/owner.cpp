// LocalDomain: the owner's side, for writes of others.
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "fabric/local/limits.h"
#include "fabric/local/parts.h"
#include "host/process_file.h"

namespace braid::fabric::local {

void LocalDomain::welcome(Packet hello, Socket socket) {
  // Other packets do not come from a writer: a writer of other versions has seen in the address
  // that it cannot connect.
  const uint64_t said = front_of<uint64_t>(hello.bytes).value_or(0);
  const bool is_known = (said & ~uint64_t{0xff}) == kHello && kVersions.hold(said & 0xff);
  if (!is_known || visitors_.size() >= kVisitorsMax) return;
  Result<Segment> segment = Segment::open(hello.file);
  if (!segment.ok()) return;
  Visitor visitor;
  visitor.process = socket.process_file();
  if (visitor.process.is_open()) visitor.end = waker_.watch(visitor.process.get());
  visitor.sayings.emplace(&segment.value().shared().to_writer);
  visitor.consumer.emplace(&segment.value().shared().to_owner);
  visitor.segment.emplace(std::move(segment).value());
  visitor.socket.emplace(std::move(socket));
  visitors_.add(std::move(visitor));
}

/// Notices that they have left. Processes that left before are looked at too.
void LocalDomain::look_at_visitors() {
  const bool looks_for_ends = looked_ns_ - looked_for_ends_ns_ >= kBetweenLooksForEndsNs;
  if (looks_for_ends) looked_for_ends_ns_ = looked_ns_;
  visitors_.for_each([&](uint64_t, Visitor& visitor) {
    for (int left = kRecordsAtOnce; left > 0; --left) {  // rings, or the last packet
      const auto packet = visitor.socket->receive();
      if (!packet) break;
      visitor.has_let_go = front_of<uint64_t>(packet->bytes) == kGoodbye;
    }
    if (looks_for_ends) visitor.has_ended = has_ended(visitor.process);
  });
  if (looks_for_ends) forget_ended_processes();
}

/// False: the visitor has left, and all its records were handled; or it does not take its records.
bool LocalDomain::serve(uint64_t id, Visitor& visitor) {
  visitor.sayings->go_on();
  bool has_room = true;
  std::erase_if(visitor.to_offer, [&](uint64_t key) {
    return has_room && is_answerable(key) && (has_room = offer(id, visitor, key));
  });
  if (visitor.sayings->is_overfull() || visitor.to_offer.size() > kAsksMax) return false;
  const auto may_say_more = [&] {
    return visitor.held < kHeldMessagesMax && ready_.size() < kReadyMax;
  };
  for (int count = 0; count < kRecordsAtOnce && may_say_more(); ++count) {
    const std::optional<Consumer::Record> record = visitor.consumer->take();
    if (!record)
      return !visitor.socket->is_closed() && !visitor.has_ended && !visitor.consumer->is_broken();
    handle(id, visitor, *record);
  }
  return true;
}

void LocalDomain::handle(uint64_t id, Visitor& visitor, const Consumer::Record& record) {
  const Bytes bytes = record.bytes;
  if (record.kind == kLanded) {
    const std::optional<Landed> landed = front_of<Landed>(bytes);
    if (landed && landed->count > 0)
      ready_.push_back({Event::kImmediate, true, static_cast<uint32_t>(landed->immediate), 0, 0,
                        static_cast<uint32_t>(std::min(landed->count, kLandedMax))});
  }
  if (record.kind == kBytes)
    if (const auto write = front_of<HostWrite>(bytes))
      land(visitor, *write, bytes.subspan(sizeof *write));
  const std::optional<Numbered> numbered = front_of<Numbered>(bytes);
  if (!numbered) return;
  if (record.kind == kAsk) visitor.to_offer.push_back(numbered->number);
  if (record.kind == kLetGo) {
    std::erase(visitor.to_offer, numbered->number);
    let_go(id, numbered->number);
  }
  if (record.kind != kMessage) return;
  const Bytes message = bytes.subspan(sizeof *numbered);
  messages_.push_back({id, numbered->number, {message.begin(), message.end()}});
  ++visitor.held;
  match_messages();
}

/// Copies bytes into host memory, also such as the writer could map.
void LocalDomain::land(Visitor& visitor, const HostWrite& write, Bytes bytes) {
  has_copied_ = true;
  Region* region = region_of(write.key);
  const uint64_t offset = offset_of(write.address);
  const bool is_inside = region != nullptr && region->lane == nullptr &&
                         offset <= region->memory.size() &&
                         bytes.size() <= region->memory.size() - offset;
  if (is_inside && !visitor.broken.contains(write.number))
    std::copy(bytes.begin(), bytes.end(), region->memory.data() + offset);
  else if (visitor.broken.size() < kPostingsMax)
    visitor.broken.insert(write.number);
  if (write.is_last == 0) return;
  const bool ok = is_inside && visitor.broken.erase(write.number) == 0;
  if (!ok) visitor.broken.erase(write.number);
  if (ok && write.has_immediate != 0)
    ready_.push_back({Event::kImmediate, true, static_cast<uint32_t>(write.immediate), 0, 0,
                      static_cast<uint32_t>(write.slices)});
  visitor.sayings->say(kEnded, Numbered{write.number, ok});
}

// ---- Memory that peers map ----

LocalDomain::Region* LocalDomain::region_of(uint64_t key) {
  const auto found = region_of_key_.find(key);
  return found == region_of_key_.end() ? nullptr : &regions_.at(found->second);
}

/// False: the driver has not said yet how the memory is shared. Other requests need not wait for
/// that.
bool LocalDomain::is_answerable(uint64_t key) {
  const Region* region = region_of(key);
  return region == nullptr || region->exported == nullptr ||
         region->exported->has_ended(*region->lane);
}

/// False: the socket has no room now.
bool LocalDomain::offer(uint64_t id, Visitor& visitor, uint64_t key) {
  Offer offer;
  offer.key = key;
  Region* region = region_of(key);
  const Exported* exported = nullptr;
  // Host memory has another way, if nobody would tell when the process ends that has mapped it.
  if (region != nullptr && region->pages && visitor.process.is_open()) exported = &*region->pages;
  if (region != nullptr && region->exported != nullptr) exported = region->exported->result();
  const bool is_new = !visitor.slots.contains(key);
  if (exported == nullptr || !is_new || visitor.slots.size() >= kSlots)
    return visitor.socket->send(bytes_of(offer));
  offer = exported->offer;
  offer.key = key;
  // The driver lets no process open its own allocation by IPC.
  if (offer.kind == Offer::kIpc && visitor.socket->process() == getpid())
    offer.kind = Offer::kSameProcess;
  uint64_t slot = visitor.slots.size();
  if (!visitor.free_slots.empty()) {
    slot = visitor.free_slots.back();
    visitor.free_slots.pop_back();
  }
  offer.slot = slot;
  visitor.slots[key] = {slot, region_of_key_.at(key)};
  visitor.segment->shared().board[slot] = key;
  region->holders.insert(id);
  const int file = exported->file != nullptr ? exported->file->get() : -1;
  if (visitor.socket->send(bytes_of(offer), file)) return true;
  let_go(id, key);
  return false;
}

void LocalDomain::let_go(uint64_t id, uint64_t key) {
  Visitor& visitor = *visitors_.find(id);
  const auto slot = visitor.slots.find(key);
  if (slot == visitor.slots.end()) return;
  const auto [place, region] = slot->second;
  visitor.segment->shared().board[place] = 0;
  visitor.free_slots.push_back(place);
  visitor.slots.erase(slot);
  drop_holder(id, region);
}

void LocalDomain::drop_holder(uint64_t visitor, uint32_t number) {
  const auto found = regions_.find(number);
  if (found == regions_.end() || found->second.holders.erase(visitor) == 0) return;
  if (found->second.is_removed && found->second.holders.empty()) regions_.erase(found);
}

/// Memory that the visitor has not let go may stay mapped until its process has ended.
void LocalDomain::leave(uint64_t id) {
  Visitor& visitor = *visitors_.find(id);
  const bool has_let_go = visitor.has_let_go || visitor.socket->process() == getpid();
  std::vector<uint64_t> keys;
  std::vector<uint32_t> regions;
  for (const auto& [key, slot] : visitor.slots) {
    keys.push_back(key);
    regions.push_back(slot.region);
  }
  if (has_let_go)
    for (const uint64_t key : keys) let_go(id, key);
  else if (!keys.empty())
    ghosts_.push_back({std::move(visitor.process), std::move(visitor.end), id, std::move(regions)});
  std::erase_if(messages_, [&](const Message& message) { return message.visitor == id; });
  visitors_.erase(id);
}

void LocalDomain::forget_ended_processes() {
  std::erase_if(ghosts_, [&](const Ghost& ghost) {
    if (!has_ended(ghost.process)) return false;
    for (const uint32_t region : ghost.regions) drop_holder(ghost.visitor, region);
    return true;
  });
}

}  // namespace braid::fabric::local
