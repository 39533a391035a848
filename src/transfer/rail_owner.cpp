// Rail: reads and writes of peers in the memory of this side. Every right is checked here.
#include <algorithm>
#include <utility>

#include "transfer/rail.h"

namespace braid::transfer {
namespace {

constexpr size_t kLentMax = 1 << 14;     // buffers that one peer lends over one link
constexpr size_t kServingMax = 1 << 14;  // its reads under way

}  // namespace

void Rail::grant(Link& link, const GrantRequest& request) {
  GrantAnswer answer;
  answer.token = request.token;
  const Buffer* buffer = nullptr;
  answer.cause = check(buffers_, request.address, request.size_bytes, kMayWrite, buffer);
  if (answer.cause == Cause::kNone && !link.grants.contains(buffer->id)) {
    const auto region = regions_.find(buffer->id);
    const auto granted = region == regions_.end()
                             ? Result<fabric::Granted>(Status::error("no such region"))
                             : engine_->grant(region->second, link.peer, 0, buffer->memory.size());
    if (granted.ok())
      link.grants[buffer->id] = granted.value();
    else
      answer.cause = region == regions_.end() ? Cause::kOtherWay : Cause::kTooMuch;
  }
  if (answer.cause == Cause::kNone) {
    answer.address = buffer->address();
    answer.size_bytes = buffer->memory.size();
    answer.descriptor = fabric::encode(link.grants[buffer->id].descriptor, secret_);
  }
  send(link_of_peer_.at(link.peer), answer);
}

void Rail::borrow(Link& link, const Lend& lend) {
  Lent answer{lend.number, Cause::kTooMuch};
  const auto known = link.lent.find(lend.number);
  if (known != link.lent.end() && engine_->has_target(known->second)) {  // the answer was lost
    answer.cause = Cause::kNone;
    return send(link_of_peer_.at(link.peer), answer);
  }
  if (link.lent.size() >= link.lent_max) forget_what_was_taken_back(link);
  const auto descriptor = fabric::decode_descriptor(lend.descriptor, secret_);
  if (link.lent.size() < kLentMax && descriptor.ok()) {
    const Result<uint64_t> target = engine_->open_target(descriptor.value());
    if (target.ok()) {
      link.lent[lend.number] = target.value();
      answer.cause = Cause::kNone;
    }
  }
  send(link_of_peer_.at(link.peer), answer);
}

/// Forgets loans that were taken back: a peer sends no message when it unregisters a lent buffer.
void Rail::forget_what_was_taken_back(Link& link) const {
  std::erase_if(link.lent, [&](const auto& each) { return !engine_->has_target(each.second); });
  link.lent_max = std::clamp<size_t>(2 * link.lent.size(), 64, kLentMax);
}

/// Serves reads. Successive reads with the same immediate become one write. Each is checked.
void Rail::serve(uint64_t id, Link& link, const Reads& reads) {
  Gathered together;
  for (const ReadRequest& read : reads.reads) {
    Gathered found;
    const Cause cause = read.file != 0 ? serve_file(id, link, read) : find(link, read, found);
    if (cause != Cause::kNone) {
      refuse(id, link, read.id, cause);
    } else if (read.file == 0) {
      const bool goes_along = together.region == found.region && together.target == found.target &&
                              together.immediate == found.immediate &&
                              together.has_room_for(read.size_bytes);
      if (!goes_along) serve(id, link, std::exchange(together, found));
      together.add({read.address - found.base, read.offset_bytes, read.size_bytes}, read.id);
    }
  }
  serve(id, link, together);
}

Cause Rail::find(const Link& link, const ReadRequest& read, Gathered& found) {
  const Buffer* buffer = nullptr;
  const Cause cause = check(buffers_, read.address, read.size_bytes, kMayRead, buffer);
  if (cause != Cause::kNone) return cause;
  const auto lent = link.lent.find(read.lent);
  const auto region = regions_.find(buffer->id);
  if (region == regions_.end()) return Cause::kOtherWay;
  if (lent == link.lent.end() || read.size_bytes == 0) return Cause::kLocalMemory;
  if (link.serving >= kServingMax) return Cause::kTooMuch;
  found.region = region->second;
  found.target = lent->second;
  found.immediate = read.immediate;
  found.base = buffer->address();
  return Cause::kNone;
}

void Rail::serve(uint64_t id, Link& link, const Gathered& reads) {
  if (reads.shares.empty()) return;
  const Result<uint64_t> ticket = write(reads, reads.immediate);
  if (!ticket.ok()) {
    for (const Share& share : reads.shares) refuse(id, link, share.piece, Cause::kLocalMemory);
    return;
  }
  link.serving += reads.shares.size();
  const uint64_t request =
      under_way_.add({Doing::kServing, id, reads.shares, 0, ticket.value(), 0});
  (void)engine_->when_ended(ticket.value(), request);
}

void Rail::refuse(uint64_t id, Link& link, uint64_t read, Cause cause) {
  link.refusals.push_back({read, known_in(link.version, cause)});
  mark(id, link);
}

void Rail::served(const UnderWay& reads, bool is_done) {
  Link* link = links_.find(reads.link);
  if (link == nullptr) return;
  link->serving -= reads.shares.size();
  for (const Share& share : reads.shares) {
    if (is_done)
      link->counts.served_bytes += share.size_bytes;
    else if (!link->is_closed)
      refuse(reads.link, *link, share.piece, Cause::kPathFailed);
  }
}

}  // namespace braid::transfer
