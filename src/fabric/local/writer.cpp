// LocalDomain: the writer's side, for memory of others.
#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/try.h"
#include "fabric/local/limits.h"
#include "fabric/local/parts.h"

namespace braid::fabric::local {

std::string suffix_of(const Versions& versions) {
  return "." + std::to_string(versions.newest) + "." + std::to_string(versions.oldest);
}

Versions versions_of(const std::string& address) {
  unsigned newest = 1, oldest = 1;
  if (const size_t dot = address.find('.'); dot != std::string::npos)
    (void)std::sscanf(address.c_str() + dot, ".%3u.%3u", &newest, &oldest);
  return {static_cast<uint8_t>(newest), static_cast<uint8_t>(oldest)};
}

Result<uint32_t> LocalDomain::connect(Bytes address) {
  const std::string name(reinterpret_cast<const char*>(address.data()), address.size());
  const Versions theirs = versions_of(name);
  const std::optional<uint8_t> version = kVersions.common_with(theirs);
  if (!version) return no_common_version("shares memory within the host", theirs.text(), kVersions);
  Peer peer;
  BRAID_LET(socket, Socket::connect(name));
  if (socket) {  // otherwise postings fail
    BRAID_LET(created, CreatedSegment::create());
    if (socket->send(bytes_of(hello_of(*version)), created.file.get())) {
      Segment& segment = created.segment;
      socket->wakes(waker_);
      peer.sayings.emplace(&segment.shared().to_owner);
      peer.consumer.emplace(&segment.shared().to_writer);
      peer.segment.emplace(std::move(segment));
      peer.socket = std::move(socket);
    }
  }
  return peers_.add(std::move(peer));
}

/// Before the connection is closed, the domain unmaps the peer's memory, and tells the peer.
void LocalDomain::disconnect(uint32_t number) {
  Peer& peer = peers_.at(number);
  peer.is_leaving = true;
  for (auto& [key, import] : peer.imports) stop_writing(import);
}

/// Only this process reads the sources, so all that is not being copied fails at once. A process
/// may have ended although its socket is open: a child of it keeps that.
void LocalDomain::abandon(uint32_t number, Absence absence) {
  Peer* peer = peers_.find(number);
  if (peer == nullptr || !peer->socket) return;
  peer->is_abandoned = true;
  absence == Absence::kEnded ? lose(*peer) : stop_postings(*peer);
}

// ---- Into host memory that the owner does not share ----

void LocalDomain::write_to_host(Peer& peer) {
  while (!peer.host_writes.empty() && put_host_part(peer, peer.host_writes.front())) {
    const uint64_t id = peer.host_writes.front();
    if (!postings_.find(id)->is_put()) continue;
    peer.host_writes.pop_front();
    peer.unanswered.insert(id);
  }
}

/// False: not now.
bool LocalDomain::put_host_part(Peer& peer, uint64_t id) {
  Posting& posting = *postings_.find(id);
  const Write& write = posting.write;
  const fabric::Segment segment = posting.segment_at(posting.segment);
  const uint64_t size_bytes = std::min(segment.source.size() - posting.next, kHostPartBytes);
  const bool ends_segment = posting.next + size_bytes == segment.source.size();
  Bytes part = segment.source.subspan(posting.next, size_bytes);
  if (const Region& source = regions_.at(write.region); source.lane != nullptr) {
    if (peer.state == Peer::Bounce::kFree) {
      peer.bounce.resize(kHostPartBytes);
      peer.state = Peer::Bounce::kFilling;
      begin_copy(source.lane, gpu::CopyKind::kToHost,
                 {reinterpret_cast<CUdeviceptr>(peer.bounce.data()),
                  reinterpret_cast<CUdeviceptr>(part.data()), size_bytes, id | kBouncing, nullptr});
    }
    if (peer.state != Peer::Bounce::kFull) return false;
    part = Bytes(peer.bounce).first(size_bytes);
  }
  const HostWrite header{id,
                         segment.target_address + posting.next,
                         write.target_key,
                         ends_segment && posting.segment + 1 == posting.segment_count(),
                         write.immediate.has_value(),
                         write.immediate.value_or(0),
                         write.slices};
  if (!peer.sayings->say_now(kBytes, header, part)) return false;
  peer.state = Peer::Bounce::kFree;
  posting.put(size_bytes);
  has_copied_ = true;
  return true;
}

// ---- What peers say ----

void LocalDomain::listen_to(Peer& peer) {
  for (int count = 0; count < kRecordsAtOnce; ++count) {
    const std::optional<Consumer::Record> record = peer.consumer->take();
    if (!record) break;
    handle(peer, *record);
  }
  if (peer.consumer->is_broken() || peer.sayings->is_overfull()) lose(peer);
}

void LocalDomain::handle(Peer& peer, const Consumer::Record& record) {
  const std::optional<Numbered> said = front_of<Numbered>(record.bytes);
  if (!said) return;
  if (record.kind == kEnded && peer.unanswered.contains(said->number))
    end_posting(said->number, said->ok != 0);
  if (record.kind != kRemoved) return;
  const auto found = peer.imports.find(said->number);
  if (found != peer.imports.end())
    stop_writing(found->second);
  else
    peer.sayings->say(kLetGo, *said);
}

void LocalDomain::advance(Peer& peer) {
  peer.sayings->go_on();
  start_waiting(peer);
  copy_pages(peer);
  while (!peer.landed.empty()) {
    const auto [immediate, count] = *peer.landed.begin();
    if (!peer.sayings->say_now(kLanded, Landed{immediate, std::min(count, kLandedMax)}, {})) break;
    if (count > kLandedMax)
      peer.landed.begin()->second -= kLandedMax;
    else
      peer.landed.erase(peer.landed.begin());
  }
  if (!peer.is_leaving) write_to_host(peer);
  let_go_of_removed(peer);
  const bool has_said_all = peer.landed.empty() && peer.sayings->is_empty();
  if (peer.is_leaving && peer.imports.empty() && has_said_all) lose(peer);
}

/// The peer's process has ended, or sent an invalid record, or all is said to a peer that we leave.
void LocalDomain::lose(Peer& peer) {
  peer.socket.reset();
  stop_postings(peer);
  close_imports(peer);
}

void LocalDomain::stop_postings(Peer& peer) {
  for (auto& [key, import] : peer.imports) stop_writing(import);
  for (const uint64_t posting : std::set<uint64_t>(peer.unanswered)) end_posting(posting, false);
  const bool is_filling = peer.state == Peer::Bounce::kFilling;  // its source is still read
  while (peer.host_writes.size() > (is_filling ? 1 : 0)) {
    end_posting(peer.host_writes.back(), false);
    peer.host_writes.pop_back();
  }
}

/// Frees the shared memory as soon as nothing needs it, and the peer's number once it is
/// disconnected too.
void LocalDomain::forget_if_over(uint32_t number) {
  Peer& peer = peers_.at(number);
  if (peer.socket || peer.has_something_under_way()) return;
  peer.sayings.reset();
  peer.consumer.reset();
  peer.segment.reset();
  peer.bounce = {};
  if (peer.is_leaving) peers_.erase(number);
}

}  // namespace braid::fabric::local
