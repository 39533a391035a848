#include "fabric/staged/domain.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "base/try.h"
#include "fabric/gpu/memory.h"
#include "fabric/staged/limits.h"
#include "fabric/staged/parts.h"
#include "host/random_number.h"

namespace braid::fabric::staged {

Result<std::unique_ptr<Domain>> stage(std::unique_ptr<Domain> wire, const Options& options) {
  return StagedDomain::open(std::move(wire), options);
}

Result<std::unique_ptr<Domain>> StagedDomain::open(std::unique_ptr<Domain> wire,
                                                   const Options& options) {
  if (!wire->traits().closing_fences)
    return Status::error(wire->traits().provider +
                         " cannot end the writes of one peer, so rings "
                         "for memory of GPUs could never be used again");
  std::unique_ptr<StagedDomain> domain(new StagedDomain(std::move(wire), options));
  BRAID_TRY(domain->prepare());
  return std::unique_ptr<Domain>(std::move(domain));
}

Status StagedDomain::prepare() {
  address_ = encode_address(wire_->address(), {});
  receive_memory_.resize(kReceives * kMessageBytes);
  BRAID_LET(region, wire_->add_region(receive_memory_, Access::kLocal));
  receive_region_ = region;
  for (uint32_t part = 0; part < kReceives; ++part) to_receive_.push_back(part);
  post_receives();
  return {};
}

template <typename Visit>
void StagedDomain::for_each_ring(const Visit& visit) {
  for (auto* rings : {&spare_local_, &spare_remote_})
    for (Ring& ring : *rings) visit(ring);
  for (Closing& closing : closing_) visit(closing.ring);
  peers_.for_each([&](uint32_t, Peer& peer) {
    if (peer.ring) visit(*peer.ring);
  });
  for (auto& [session, visitor] : visitors_) visit(visitor.ring);
}

StagedDomain::~StagedDomain() {
  wire_.reset();  // only copies use the rings now
  while (copies_ > 0) {
    ended_now_.clear();
    if (ended_->take(ended_now_))
      copies_ -= ended_now_.size();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  for_each_ring([](Ring& ring) { ring.memory.give_back(); });
  spare_local_.clear();
  spare_remote_.clear();
  closing_.clear();
  peers_ = {};
  visitors_.clear();
  regions_.clear();
  leaving_.clear();
  lane_ends_.wait();
}

// ---- Regions ----

Result<uint32_t> StagedDomain::add_region(MutableBytes memory, Access access) {
  BRAID_LET(lane, gpu::lane_of_memory(memory));
  if (lane != nullptr) return add_gpu_region(memory, access, lane);
  return add_host_region(memory, wire_->add_region(memory, access), std::nullopt);
}

Result<uint32_t> StagedDomain::add_host_region(MutableBytes memory, const Result<uint32_t>& wire,
                                               std::optional<uint32_t> door) {
  if (!wire.ok()) return wire.status();
  Region region;
  region.memory = memory;
  region.wire = wire.value();
  region.door = door;
  regions_[next_region_] = std::move(region);
  return next_region_++;
}

Result<uint32_t> StagedDomain::add_gpu_region(MutableBytes memory, Access access,
                                              std::shared_ptr<gpu::Lane> lane) {
  Region region;
  region.memory = memory;
  region.lane = lane;
  lane_ends_.add(*lane);
  if (leaving_.erase(lane) > 0) for_each_ring([&](Ring& ring) { ring.memory.stay(*lane); });
  traits_.posted_bytes_max = std::max(traits_.posted_bytes_max, kPostedBytesMax);
  if (access == Access::kRemoteWrite) {
    do {
      region.key = random_number();
    } while (!region_of_key_.emplace(region.key, next_region_).second);
  }
  regions_[next_region_] = std::move(region);
  return next_region_++;
}

RemoteRange StagedDomain::remote_range(uint32_t number) const {
  const Region& region = regions_.at(number);
  return region.is_gpu() ? RemoteRange{kGpuBase, region.key} : wire_->remote_range(region.wire);
}

void StagedDomain::remove_region(uint32_t number) {
  const Region& region = regions_.at(number);
  if (!region.is_gpu()) wire_->remove_region(region.wire);
  region_of_key_.erase(region.key);
  if (region.arrivals > 0)
    draining_.insert(number);
  else
    erase_region(number);
}

/// Leaves the lane after the last region of its context, since the program may then destroy the
/// context.
void StagedDomain::erase_region(uint32_t number) {
  const std::shared_ptr<gpu::Lane> lane = regions_.at(number).lane;
  regions_.erase(number);
  const bool is_used = std::any_of(regions_.begin(), regions_.end(),
                                   [&](const auto& region) { return region.second.lane == lane; });
  if (lane == nullptr || is_used) return;
  leaving_.insert(lane);
  leave_lanes();
}

void StagedDomain::leave_lanes() {
  std::erase_if(leaving_, [&](const std::shared_ptr<gpu::Lane>& lane) {
    bool has_left = lane->is_programs();
    if (has_left)
      for_each_ring([&](Ring& ring) { has_left = ring.memory.leave(*lane) && has_left; });
    return has_left;
  });
}

bool StagedDomain::removal_fences(uint32_t number) const {
  const Region& region = regions_.at(number);
  return region.is_gpu() || wire_->removal_fences(region.wire);
}

// ---- Rings ----

/// Once there are as many rings as may be, the other role's spare ones are taken.
std::optional<StagedDomain::Ring> StagedDomain::take_ring(std::deque<Ring>& spare) {
  const bool is_full = rings_ >= kRingsMax;
  auto& others = &spare == &spare_local_ ? spare_remote_ : spare_local_;
  if (auto& from = spare.empty() && is_full ? others : spare; !from.empty()) {
    Ring ring = std::move(from.front());
    from.pop_front();
    if (&from == &others && ring.region) wire_->remove_region(*std::exchange(ring.region, {}));
    return ring;
  }
  if (is_full) return std::nullopt;
  auto memory = gpu::HostMemory::open(kRingBytes);
  if (memory == nullptr) return std::nullopt;
  ++rings_;
  return Ring{gpu::Passage(std::move(memory)), {}};
}

/// Takes back the rings of writers that have gone. Nothing lands behind a drained door, whatever
/// those writers do.
void StagedDomain::reclaim_rings() {
  std::erase_if(closing_, [&](Closing& closing) {
    if (wire_->drain_door(closing.door) != Drain::kOver) return false;
    if (closing.is_stranger) --rings_of_strangers_;
    spare_remote_.push_back(std::move(closing.ring));
    return true;
  });
}

// ---- Peers and messages ----

Result<uint32_t> StagedDomain::connect_all(Bytes address, std::span<const Bytes> further) {
  BRAID_LET(to, read_address(address));
  BRAID_LET(line, line_to(to.place, to.version));
  const uint32_t number = peers_.add({});
  Peer& peer = peers_.at(number);
  peer.line = line;
  peer.lasting_number = random_number();
  if (!to.door.empty()) {
    peer.is_wide = !further.empty() && wide_peers_ < wide_max_;
    const Result<uint32_t> way =
        way_to(number, to.door, peer.is_wide ? further : std::span<const Bytes>());
    if (!way.ok()) {
      peers_.erase(number);
      leave_line(line);
      return way.status();
    }
    peer.door = way.value();
  }
  lines_.at(line).version = to.version;
  ++lines_.at(line).connections;
  if (peer.is_wide) ++wide_peers_;
  return number;
}

void StagedDomain::disconnect(uint32_t number) {
  Peer& peer = peers_.at(number);
  // The user drops the peer, so the peer's visits here end.
  Line& line = lines_.at(peer.line);
  if (peer.is_abandoned) --line.abandoned;
  if (--line.connections == 0) end_visits_on(peer.line, std::nullopt);
  if (peer.state == Peer::State::kOpen && peer.postings == 0)
    tell(peer.line, {.kind = Kind::kGoodbye, .session = peer.session});
  break_session(number);
  for (const uint32_t posting : std::vector<uint32_t>(peer.queue.begin(), peer.queue.end()))
    fail(posting);
  leave_way(peer.door);
  // Others there may have been abandoned while this one used the line.
  if (line.connections > 0 && !line.is_abandoned) abandon_line(peer.line, Absence::kSilent);
  leave_line(peer.line);
  if (peer.is_wide) --wide_peers_;
  peer.is_gone = true;
  forget_if_over(number);
}

/// Forgets the peer once its postings have ended. Until then they read its ring.
void StagedDomain::forget_if_over(uint32_t number) {
  Peer& peer = peers_.at(number);
  if (!peer.is_gone || peer.postings > 0) return;
  if (peer.ring) spare_local_.push_back(std::move(*peer.ring));
  waiting_.erase(number);
  peers_.erase(number);
}

bool StagedDomain::post_write(const Write& write) {
  const Region& source = regions_.at(write.region);
  const bool to_gpu = (write.target_address & kGpuBase) != 0;
  const Peer* peer = peers_.find(write.peer);
  if (peer == nullptr || peer->is_gone) {
    ready_.push_back({Event::kPosted, false, 0, 0, write.context});
    return true;
  }
  if (source.is_gpu() || to_gpu) return begin(write, to_gpu, source);
  Write plain = write;
  plain.region = source.wire;
  plain.peer = peer->door ? ways_.at(*peer->door).wire : lines_.at(peer->line).wire;
  return wire_->post_write(plain);
}

bool StagedDomain::post_send(uint32_t peer, uint32_t region, Bytes message, uint64_t context) {
  return wire_->post_send(lines_.at(peers_.at(peer).line).wire, regions_.at(region).wire, message,
                          context);
}

bool StagedDomain::post_receive(uint32_t, MutableBytes buffer, uint64_t context) {
  buffers_.push_back({buffer, context});
  match_messages();
  return true;
}

void StagedDomain::post_receives() {
  while (!to_receive_.empty()) {
    const uint32_t part = to_receive_.back();
    const MutableBytes buffer =
        MutableBytes(receive_memory_).subspan(part * kMessageBytes, kMessageBytes);
    if (!wire_->post_receive(receive_region_, buffer, own(Own::kReceive, part))) return;
    to_receive_.pop_back();
  }
}

void StagedDomain::received(uint32_t part, uint64_t size_bytes) {
  Bytes bytes = Bytes(receive_memory_)
                    .subspan(part * kMessageBytes, std::min<uint64_t>(size_bytes, kMessageBytes));
  const std::optional<uint8_t> version = version_of(bytes);
  if (!version) {
    messages_.push_back({part, bytes.size()});
    return match_messages();
  }
  to_receive_.push_back(part);
  if (*version >= kSealedVersion) bytes = sealing_.open(bytes);
  if (bytes.empty()) return;
  if (const std::optional<Message> message = read_message(bytes))
    handle(*message, *version);
  else
    sealing_.count_malformed();
}

void StagedDomain::match_messages() {
  while (!messages_.empty() && !buffers_.empty()) {
    const auto [part, size_bytes] = messages_.front();
    const Buffer buffer = buffers_.front();
    messages_.pop_front();
    buffers_.pop_front();
    const bool fits = size_bytes <= buffer.memory.size();
    if (fits)
      std::memcpy(buffer.memory.data(), receive_memory_.data() + part * kMessageBytes, size_bytes);
    ready_.push_back({Event::kReceived, fits, 0, size_bytes, buffer.context});
    to_receive_.push_back(part);
  }
}

// ---- Progress ----

size_t StagedDomain::poll(std::span<Completion> completions) {
  ++polls_;
  take_copies();
  size_t count = 0;
  const auto hand_out = [&] {
    for (; count < completions.size() && !ready_.empty(); ready_.pop_front())
      completions[count++] = ready_.front();
  };
  hand_out();
  const size_t come = wire_->poll(completions.subspan(count));
  for (size_t i = 0, first = count; i < come; ++i)
    if (!handle_own(completions[first + i])) completions[count++] = completions[first + i];
  post_receives();
  post_pieces();
  for (const uint32_t peer : std::vector<uint32_t>(waiting_.begin(), waiting_.end()))
    if (peers_.find(peer) != nullptr) advance(peer);
  reclaim_rings();
  leave_lanes();
  talk();
  hand_out();
  return count;
}

/// False: the completion is the user's.
bool StagedDomain::handle_own(const Completion& completion) {
  if (completion.event == Event::kImmediate || completion.event == Event::kLanded ||
      (completion.context & kOwnContexts) != kOwnContexts)
    return false;
  const uint32_t index = static_cast<uint32_t>(completion.context);
  switch (static_cast<Own>(completion.context >> 32 & 0xff)) {
    case Own::kReceive:
      if (completion.ok)
        received(index, completion.size_bytes);
      else
        to_receive_.push_back(index);
      break;
    case Own::kSend: said(index, completion.ok); break;
    case Own::kPiece: posted(index, completion.ok); break;
    case Own::kArrival: break;  // of copies alone
  }
  return true;
}

void StagedDomain::take_copies() {
  ended_now_.clear();
  if (!ended_->take(ended_now_)) return;
  for (const gpu::Ended::Copy& copy : ended_now_) {
    --copies_;
    const uint32_t index = static_cast<uint32_t>(copy.tag);
    if (static_cast<Own>(copy.tag >> 32 & 0xff) == Own::kArrival)
      copied_to_gpu(index, copy.ok);
    else
      copied_to_ring(index, copy.ok);
  }
}

}  // namespace braid::fabric::staged
