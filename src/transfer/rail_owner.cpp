// Rail: what peers do with the memory of this side. Every right is checked here.
#include <utility>

#include "transfer/rail.h"

namespace braid::transfer {
namespace {

constexpr uint64_t kLongestNs = 30'000'000'000;
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

void Rail::serve(uint64_t id, Link& link, const Reads& reads) {
  for (const ReadRequest& read : reads.reads) {
    const Cause cause = serve(id, link, read);
    if (cause == Cause::kNone) continue;
    link.refusals.push_back({read.id, cause});
    mark(id, link);
  }
}

Cause Rail::serve(uint64_t id, Link& link, const ReadRequest& read) {
  if (read.file != 0) return serve_file(id, link, read);
  const Buffer* buffer = nullptr;
  const Cause cause = check(buffers_, read.address, read.size_bytes, kMayRead, buffer);
  if (cause != Cause::kNone) return cause;
  const auto lent = link.lent.find(read.lent);
  const auto region = regions_.find(buffer->id);
  if (region == regions_.end()) return Cause::kOtherWay;
  if (lent == link.lent.end()) return Cause::kLocalMemory;
  if (link.serving >= kServingMax) return Cause::kTooMuch;
  const fabric::Slice slice{read.address - buffer->address(), read.offset_bytes, read.size_bytes};
  const Result<uint64_t> ticket =
      engine_->write(region->second, lent->second, slice, read.immediate, now_ns_ + kLongestNs);
  if (!ticket.ok()) return Cause::kLocalMemory;
  ++link.serving;
  const uint64_t request =
      under_way_.add({Doing::kServing, id, read.id, read.size_bytes, 0, ticket.value(), 0});
  (void)engine_->when_ended(ticket.value(), request);
  return Cause::kNone;
}

void Rail::served(const UnderWay& read, bool is_done) {
  Link* link = links_.find(read.link);
  if (link == nullptr) return;
  --link->serving;
  if (is_done) {
    link->counts.served_bytes += read.size_bytes;
  } else if (!link->is_closed) {
    link->refusals.push_back({read.piece, Cause::kPathFailed});
    mark(read.link, *link);
  }
}

}  // namespace braid::transfer
