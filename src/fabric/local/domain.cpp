#include "fabric/local/domain.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/try.h"
#include "fabric/gpu/memory.h"
#include "fabric/gpu/process_driver.h"
#include "fabric/local/limits.h"
#include "fabric/local/parts.h"
#include "fabric/seal.h"
#include "host/random_number.h"

namespace braid::fabric::local {
Result<std::unique_ptr<Domain>> open_domain() { return LocalDomain::open(); }

Status check_shareable(MutableBytes memory) {
  BRAID_LET(lane, gpu::lane_of_memory(memory));
  return lane == nullptr ? Status() : check_exportable(*gpu::process_driver(), memory);
}

Result<std::unique_ptr<Domain>> LocalDomain::open() {
  const std::string name = "braid-" + std::to_string(getpid()) + "-" +
                           std::to_string(random_number()) + suffix_of(kVersions);
  BRAID_LET(listener, Socket::listen(name));
  return std::unique_ptr<Domain>(new LocalDomain(std::move(listener), name));
}

LocalDomain::LocalDomain(Socket listener, const std::string& name)
    : traits_{.provider = "local",
              .removal_fences = true,
              .postings_max = kPostingsMax,
              .posted_bytes_max = kPostedBytesMax,
              .segments_max = kSegmentsMax},
      listener_(std::move(listener)) {
  listener_.wakes(waker_);
  const auto* bytes = reinterpret_cast<const std::byte*>(name.data());
  address_.assign(bytes, bytes + name.size());
}

/// Waits for its own copies. Unmaps the peers' memory, and tells the peers so.
LocalDomain::~LocalDomain() {
  visitors_.for_each([](uint64_t, Visitor& visitor) {  // they begin no more copies
    for (const auto& [key, slot] : visitor.slots) withdraw(visitor, key, slot);
  });
  for (auto& [where, copies] : batches_) where.first->copy(where.second, copies);
  peers_.for_each([](uint32_t, Peer& peer) { peer.is_leaving = true; });
  for (bool is_over = false; !is_over;) {
    take_copies();
    is_over = copies_ == 0;
    peers_.for_each([&](uint32_t, Peer& peer) {
      close_imports(peer);
      is_over = is_over && peer.imports.empty();
    });
    if (!is_over) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  peers_.for_each([](uint32_t, Peer& peer) {
    if (peer.socket) peer.socket->send(bytes_of(kGoodbye));
  });
  regions_.clear();
  leaving_.clear();
  lane_ends_.wait();
}

// ---- Regions ----

uint64_t LocalDomain::new_key() {
  uint64_t key = 0;
  do {
    key = random_number();
  } while (region_of_key_.contains(key));
  return key;
}

Result<uint32_t> LocalDomain::add_region(MutableBytes memory, Access access) {
  Region region;
  region.memory = memory;
  BRAID_LET(lane, gpu::lane_of_memory(memory));
  if (lane != nullptr) {
    region.lane = lane;
    lane_ends_.add(*lane);
    leaving_.erase(lane);
    if (access == Access::kLocal) lane->prepare_pages();
  }
  if (access == Access::kRemoteWrite) {
    if (lane != nullptr) {
      BRAID_TRY(check_exportable(*gpu::process_driver(), memory));
      region.exported = std::make_shared<Export>(*gpu::process_driver(), memory);
    } else {
      region.pages = export_pages(memory);
    }
    region.key = new_key();
    region_of_key_[region.key] = next_region_;
  }
  regions_[next_region_] = std::move(region);
  return next_region_++;
}

RemoteRange LocalDomain::remote_range(uint32_t number) const {
  const Region& region = regions_.at(number);
  return {region.lane != nullptr ? kGpuBase : region.pages ? kPagesBase : 0, region.key};
}

/// The visitor begins no more copies there. Those that it has handed to a GPU still land.
void LocalDomain::withdraw(Visitor& visitor, uint64_t key, const Visitor::Slot& slot) {
  visitor.segment->shared().board[slot.place] = 0;
  visitor.sayings->say(kRemoved, Numbered{key, 1});
}

void LocalDomain::remove_region(uint32_t number) {
  Region& region = regions_.at(number);
  region_of_key_.erase(region.key);
  region.is_removed = true;
  for (const uint64_t holder : region.holders) {
    Visitor* visitor = visitors_.find(holder);
    if (visitor != nullptr) withdraw(*visitor, region.key, visitor->slots.at(region.key));
  }
  release(std::exchange(region.lane, nullptr));
  if (region.holders.empty()) regions_.erase(number);
}

/// Leaves the lane if no region uses it any more, since the program may then destroy its context.
/// Called after a region, or memory of a peer's, has gone.
void LocalDomain::release(const std::shared_ptr<gpu::Lane>& lane) {
  const bool is_used = std::any_of(regions_.begin(), regions_.end(),
                                   [&](const auto& region) { return region.second.lane == lane; });
  if (lane == nullptr || is_used) return;
  leaving_.insert(lane);
  route_.reset();
  leave_lanes();
}

void LocalDomain::leave_lanes() {
  std::erase_if(leaving_, [&](const std::shared_ptr<gpu::Lane>& lane) {
    if (!lane->is_programs()) return false;
    bool is_left = true;
    peers_.for_each([&](uint32_t, Peer& peer) {
      for (auto& [key, import] : peer.imports) is_left = leave(import, lane) && is_left;
    });
    if (is_left)
      std::erase_if(batches_, [&](const auto& each) { return each.first.first == lane.get(); });
    return is_left;
  });
}

/// False: copies of host memory are under way, perhaps by this lane.
bool LocalDomain::leave(Import& import, const std::shared_ptr<gpu::Lane>& lane) {
  if (import.lane == lane) import.lane.reset();
  if (!import.lanes.contains(lane)) return true;
  if (import.copies > 0) return false;
  import.mapping->leave(*lane);
  import.lanes.erase(lane);
  return true;
}

Drain LocalDomain::drain(uint32_t number) const {
  return regions_.contains(number) ? Drain::kHeldByPeer : Drain::kOver;
}

// ---- Postings ----

/// It takes every write: the domain's user keeps to Traits::postings_max, beyond which each peer
/// with nothing under way may have one, so that a peer that takes nothing holds up no others.
bool LocalDomain::post_write(const Write& write) {
  Posting added{write, write.peer, {write.further.begin(), write.further.end()}};
  added.write.further = {};
  const uint64_t posting = postings_.add(std::move(added));
  Peer* peer = peers_.find(write.peer);
  if (peer == nullptr || !peer->is_reachable()) {
    end_posting(posting, false);
  } else if (write.target_address != offset_of(write.target_address)) {
    write_to_shared(posting);
  } else {
    peer->host_writes.push_back(posting);
    write_to_host(*peer);
  }
  return true;
}

bool LocalDomain::post_send(uint32_t number, uint32_t, Bytes message, uint64_t context) {
  Peer* peer = peers_.find(number);
  Write write;
  write.context = context;
  const uint64_t posting = postings_.add({write, number, {}});
  if (peer == nullptr || !peer->is_reachable() || message.size() > kMessageBytesMax) {
    end_posting(posting, false);
    return true;
  }
  const bool is_said = peer->sayings->say_now(kMessage, Numbered{posting, 1}, message);
  if (is_said)
    peer->unanswered.insert(posting);
  else
    postings_.erase(posting);
  return is_said;
}

bool LocalDomain::post_receive(uint32_t, MutableBytes buffer, uint64_t context) {
  buffers_.push_back({buffer, context});
  match_messages();
  return true;
}

void LocalDomain::match_messages() {
  while (!messages_.empty() && !buffers_.empty()) {
    const Message message = std::move(messages_.front());
    const Buffer buffer = buffers_.front();
    messages_.pop_front();
    buffers_.pop_front();
    const bool fits = message.bytes.size() <= buffer.memory.size();
    if (fits) std::copy(message.bytes.begin(), message.bytes.end(), buffer.memory.begin());
    ready_.push_back({Event::kReceived, fits, 0, message.bytes.size(), buffer.context});
    if (Visitor* visitor = visitors_.find(message.visitor)) {
      --visitor->held;
      visitor->sayings->say(kEnded, Numbered{message.number, fits});
    }
  }
}

void LocalDomain::end_posting(uint64_t id, bool ok) {
  const Posting* posting = postings_.find(id);
  if (posting == nullptr) return;
  if (Peer* peer = peers_.find(posting->peer)) peer->unanswered.erase(id);
  ready_.push_back({Event::kPosted, ok, 0, 0, posting->write.context});
  postings_.erase(id);
}

// ---- Progress ----

size_t LocalDomain::poll(std::span<Completion> completions) {
  if (is_asleep_) wake_up();
  has_copied_ = false;
  take_copies();
  if (is_time_to_look()) look_at_sockets();
  peers_.for_each([&](uint32_t number, Peer& peer) {
    if (peer.socket) listen_to(peer);
    peer.socket ? advance(peer) : close_imports(peer);
    forget_if_over(number);
  });
  visitors_.for_each([&](uint64_t id, Visitor& visitor) {
    if (!serve(id, visitor)) leave(id);
  });
  for (auto& [where, copies] : batches_) where.first->copy(where.second, copies);
  leave_lanes();
  ring();
  size_t count = 0;
  for (; count < completions.size() && !ready_.empty(); ready_.pop_front())
    completions[count++] = ready_.front();
  return count;
}

/// Wakes those who sleep, and have something to read.
void LocalDomain::ring() {
  const auto ring_at = [](auto& other) {
    constexpr std::byte kRing{};
    if (other.socket && other.sayings->has_to_ring()) other.socket->send({&kRing, 1});
  };
  peers_.for_each([&](uint32_t, Peer& peer) { ring_at(peer); });
  visitors_.for_each([&](uint64_t, Visitor& visitor) { ring_at(visitor); });
}

bool LocalDomain::arm() {
  ring();  // what was put after the last poll
  bool may_sleep = ready_.empty();
  const auto fall_asleep = [&](auto& other) {
    if (other.consumer && !other.consumer->fall_asleep()) may_sleep = false;
  };
  is_asleep_ = true;
  peers_.for_each([&](uint32_t, Peer& peer) {
    fall_asleep(peer);
    may_sleep = may_sleep && peer.page_writes.empty();
  });
  visitors_.for_each([&](uint64_t, Visitor& visitor) { fall_asleep(visitor); });
  if (may_sleep && !is_idle()) waker_.wake_in(kNapNs);
  return may_sleep;
}

void LocalDomain::wake_up() {
  is_asleep_ = false;
  waker_.cancel();
  looked_ns_ = looked_for_ends_ns_ = 0;
  const auto wake_up = [](auto& other) {
    if (other.consumer) other.consumer->wake_up();
  };
  peers_.for_each([&](uint32_t, Peer& peer) { wake_up(peer); });
  visitors_.for_each([&](uint64_t, Visitor& visitor) { wake_up(visitor); });
}

/// False: something has to be done, and nobody rings when it can be.
bool LocalDomain::is_idle() {
  bool is_idle = copies_ == 0 && leaving_.empty();
  peers_.for_each([&](uint32_t, const Peer& peer) {
    const bool has_said_all = !peer.sayings || (peer.sayings->is_empty() && peer.landed.empty());
    const bool waits = peer.is_leaving || !peer.host_writes.empty() ||
                       std::any_of(peer.imports.begin(), peer.imports.end(), [](const auto& each) {
                         return each.second.is_removed || !each.second.waiting.empty();
                       });
    is_idle = is_idle && has_said_all && !waits;
  });
  visitors_.for_each([&](uint64_t, const Visitor& visitor) {
    is_idle = is_idle && visitor.sayings->is_empty() && visitor.to_offer.empty();
  });
  return is_idle;
}

void LocalDomain::begin_copy(const std::shared_ptr<gpu::Lane>& lane, gpu::CopyKind kind,
                             gpu::Copy copy) {
  ++copies_;
  copy.ended = ended_;
  batches_[{lane.get(), kind}].push_back(std::move(copy));
}

void LocalDomain::take_copies() {
  ended_now_.clear();
  if (!ended_->take(ended_now_)) return;
  copies_ -= ended_now_.size();
  for (const gpu::Ended::Copy& copy : ended_now_) copied(copy.tag, copy.ok);
}

/// Each look makes a system call for each process.
bool LocalDomain::is_time_to_look() {
  const uint64_t now = monotonic_ns();
  if (!looks_eagerly_ && now - looked_ns_ < kBetweenLooksNs) return false;
  looked_ns_ = now;
  return true;
}

/// A well-meaning stranger has said hello already, and is no stranger any more. So however many of
/// them come at once, and however many are silent, these do not keep those out.
void LocalDomain::look_at_strangers() {
  std::vector<Socket> silent;
  const auto hear = [&](Socket stranger) {
    if (std::optional<Packet> hello = stranger.receive())
      welcome(std::move(*hello), std::move(stranger));
    else if (!stranger.is_closed())
      silent.push_back(std::move(stranger));
    if (silent.size() > kStrangersMax) silent.erase(silent.begin());
  };
  for (Socket& stranger : strangers_) hear(std::move(stranger));
  while (auto stranger = listener_.accept()) {
    stranger->wakes(waker_);
    hear(std::move(*stranger));
  }
  strangers_ = std::move(silent);
}

void LocalDomain::look_at_sockets() {
  looks_eagerly_ = false;
  look_at_strangers();
  peers_.for_each([&](uint32_t, Peer& peer) {
    if (!peer.socket) return;
    while (auto packet = peer.socket->receive()) offered(peer, std::move(*packet));
    if (peer.socket->is_closed()) lose(peer);
    for (const auto& [key, import] : peer.imports)
      looks_eagerly_ = looks_eagerly_ || import.is_awaited();
  });
  look_at_visitors();
}

}  // namespace braid::fabric::local
