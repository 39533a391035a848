// StagedDomain: the owner's side: its doors, and writes of peers into GPUs of ours.
#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/try.h"
#include "fabric/gpu/memory.h"
#include "fabric/staged/limits.h"
#include "fabric/staged/parts.h"
#include "host/random_number.h"

namespace braid::fabric::staged {

// ---- Doors: those of the wire ----

Result<uint32_t> StagedDomain::open_door() {
  const bool is_wide = wide_doors_.size() < wide_max_;
  BRAID_LET(door, is_wide ? wire_->open_door() : wire_->open_narrow_door());
  if (is_wide) wide_doors_.insert(door);
  doors_[door] = encode_address(wire_->address(), wire_->door_address(door));
  if (doors_.at(door).size() <= kAddressBytesMax) return door;
  close_door(door);
  return Status::error(traits_.provider + " has addresses that are too long");
}

/// Writes into GPU memory come through a ring, which has a door of its own.
Result<uint32_t> StagedDomain::add_door_region(uint32_t door, MutableBytes memory) {
  BRAID_LET(lane, gpu::lane_of_memory(memory));
  if (lane == nullptr) return add_host_region(memory, wire_->add_door_region(door, memory), door);
  BRAID_LET(region, add_gpu_region(memory, Access::kRemoteWrite, lane));
  regions_.at(region).door = door;
  return region;
}

void StagedDomain::close_door(uint32_t door) {
  doors_.erase(door);
  wide_doors_.erase(door);
  wire_->close_door(door);
}

Drain StagedDomain::drain_door(uint32_t door) const {
  const bool is_copied_to = std::any_of(draining_.begin(), draining_.end(), [&](uint32_t region) {
    return regions_.at(region).door == door;
  });
  return is_copied_to ? Drain::kEnding : wire_->drain_door(door);
}

// ---- Writes of peers into GPUs of ours ----

/// A peer without a connection from us is a stranger: few strangers may ask at a time.
std::optional<uint32_t> StagedDomain::line_for(Bytes address, uint8_t version) {
  size_t strangers = 0;
  lines_.for_each([&](uint32_t, const Line& line) {
    strangers += line.connections == 0 && !line.is_abandoned ? 1 : 0;
  });
  if (strangers >= kStrangersMax && !find_line(address)) return std::nullopt;
  const Result<uint32_t> line = line_to(address, version);
  return line.ok() ? std::optional(line.value()) : std::nullopt;
}

/// Gives a visitor a ring, if this domain has GPU memory to write at all. Strangers together get
/// few. Each ring has a door of its own: so once a writer has gone, its ring can be given to
/// another, whatever the writer has left under way.
bool StagedDomain::open_ring(Visitor& visitor) {
  if (region_of_key_.empty()) return false;
  if (visitor.is_stranger && rings_of_strangers_ >= kRingsOfStrangersMax) return false;
  std::optional<Ring> ring = take_ring(spare_remote_);
  if (!ring) return false;
  const Result<uint32_t> door =
      visitor.is_stranger ? wire_->open_narrow_door() : wire_->open_door();
  if (!door.ok()) {
    spare_remote_.push_back(std::move(*ring));
    return false;
  }
  if (visitor.is_stranger) ++rings_of_strangers_;
  const Result<uint32_t> region = wire_->add_door_region(door.value(), ring->memory.bytes());
  if (!region.ok()) {
    close_ring(std::move(*ring), door.value(), visitor.is_stranger);
    return false;
  }
  ring->region = region.value();
  visitor.ring = std::move(*ring);
  visitor.door = door.value();
  return true;
}

void StagedDomain::close_ring(Ring ring, uint32_t door, bool is_stranger) {
  wire_->close_door(door);
  if (ring.region) wire_->remove_region(*ring.region);
  ring.region.reset();
  closing_.push_back({std::move(ring), door, is_stranger});
}

void StagedDomain::handle_greeting(const Record& record, Bytes address, uint8_t version) {
  const std::optional<uint32_t> line = line_for(address, version);
  if (!line) return;
  if (lines_.at(*line).records.size() >= kRecordsOfLineMax) return leave_line(*line);
  // A writer that asks again has given up its earlier ring.
  end_visits_on(*line, record.write);
  Record answer{.kind = Kind::kRing, .ok = false, .session = record.number};
  Visitor visitor;
  visitor.line = *line;
  visitor.number = record.number;
  visitor.connection = record.write;
  visitor.order = ++visits_;
  visitor.is_stranger = lines_.at(*line).connections == 0;
  make_room_on(*line, false);
  if (!open_ring(visitor)) {
    make_room_on(*line, true);  // it may have come back, and have had a ring: it can ask again
    tell(*line, answer);
    return leave_line(*line);
  }
  const RemoteRange range = wire_->remote_range(*visitor.ring.region);
  answer.ok = true;
  answer.number = random_number();
  answer.offset_bytes = range.base;
  answer.key = range.key;
  answer.size_bytes = kRingBytes;
  visitors_.emplace(answer.number, std::move(visitor));
  tell(*line, answer);
}

/// A greeting names its sender's place, and anybody who knows a place can name it. So a place has
/// no more visitors than we have connections to it, and the latest visitors stay. Those that have
/// shown a key of a region are counted apart: whoever knows nothing but the place ends no visit of
/// theirs while there is a ring left, and a writer that has come back ends its earlier visit with
/// its first piece.
void StagedDomain::make_room_on(uint32_t line, bool has_shown_key) {
  const uint32_t connections = lines_.at(line).connections;
  if (connections == 0) return;           // strangers: they have a limit of their own
  std::map<uint64_t, uint64_t> sessions;  // by order
  for (const auto& [session, visitor] : visitors_)
    if (visitor.line == line && visitor.has_shown_key == has_shown_key && !visitor.has_left)
      sessions[visitor.order] = session;
  for (; sessions.size() >= connections; sessions.erase(sessions.begin()))
    end_visit(sessions.begin()->second, true);
}

/// The region that the piece may go to; none: it may not.
std::optional<uint32_t> StagedDomain::region_for(const Record& piece) const {
  const auto found = region_of_key_.find(piece.key);
  if (found == region_of_key_.end() || piece.address < kGpuBase) return std::nullopt;
  const uint64_t size_bytes = regions_.at(found->second).memory.size();
  const uint64_t offset_bytes = piece.address - kGpuBase;
  if (offset_bytes > size_bytes || piece.size_bytes > size_bytes - offset_bytes)
    return std::nullopt;
  return found->second;
}

void StagedDomain::handle_piece(const Record& piece) {
  const auto found = visitors_.find(piece.session);
  if (found == visitors_.end() || found->second.has_left) return;
  Visitor& visitor = found->second;
  if (lines_.at(visitor.line).records.size() >= kRecordsOfLineMax)
    return end_visit(piece.session, true);
  const bool is_in_ring = piece.offset_bytes <= kRingBytes && piece.size_bytes > 0 &&
                          piece.size_bytes <= kRingBytes - piece.offset_bytes &&
                          piece.size_bytes <= piece.total_bytes;
  const std::optional<uint32_t> number = region_for(piece);
  if (number && !visitor.has_shown_key) {
    make_room_on(visitor.line, true);  // before, so that it does not end itself
    visitor.has_shown_key = true;
  }
  if (!is_in_ring || !number || visitor.arrivals >= kArrivalsOfVisitorMax)
    return end_arrival(piece.session, piece, false);
  Region& region = regions_.at(*number);
  visitor.ring.memory.pin(region.lane);
  const bool uses_bounce_buffer = visitor.ring.memory.begin_copy();
  ++region.arrivals;
  ++visitor.arrivals;
  ++copies_;
  const uint32_t arrival = arrivals_.add({piece, piece.session, *number, uses_bounce_buffer});
  std::byte* to = region.memory.data() + (piece.address - kGpuBase);
  const std::byte* from = visitor.ring.memory.bytes().data() + piece.offset_bytes;
  region.lane->copy(
      gpu::CopyKind::kToGpu,
      {reinterpret_cast<CUdeviceptr>(to), reinterpret_cast<CUdeviceptr>(from), piece.size_bytes,
       own(Own::kArrival, arrival), ended_, false, *number, nullptr, uses_bounce_buffer});
}

void StagedDomain::copied_to_gpu(uint32_t index, bool ok) {
  const Arrival arrival = arrivals_.at(index);
  arrivals_.erase(index);
  Region& region = regions_.at(arrival.region);
  Visitor& visitor = visitors_.at(arrival.session);
  --visitor.arrivals;
  visitor.ring.memory.end_copy(arrival.uses_bounce_buffer);
  if (--region.arrivals == 0 && draining_.erase(arrival.region) != 0) erase_region(arrival.region);
  if (!visitor.has_left) return end_arrival(arrival.session, arrival.record, ok);
  if (visitor.arrivals == 0) end_visit(arrival.session, true);
}

/// The immediate comes first: a writer that sees the end may rely on it.
void StagedDomain::end_arrival(uint64_t session, const Record& piece, bool ok) {
  Visitor& visitor = visitors_.at(session);
  bool is_whole = piece.size_bytes == piece.total_bytes, is_good = ok;
  const bool is_known = visitor.writes.contains(piece.write);
  if (!is_whole && !is_known && visitor.writes.size() >= kPartialWritesMax) {
    ok = false;  // too many partial writes: this one fails
  } else if (!is_whole) {
    Visitor::Partial& partial = visitor.writes[piece.write];
    partial.ok = partial.ok && ok;
    partial.ended_bytes += piece.size_bytes;
    is_whole = partial.ended_bytes >= piece.total_bytes;
    is_good = partial.ok;
    if (is_whole) visitor.writes.erase(piece.write);
  }
  if (is_whole && is_good && piece.has_immediate)
    ready_.push_back(
        {Event::kImmediate, true, piece.immediate, 0, 0, static_cast<uint32_t>(piece.slices)});
  tell(visitor.line,
       {.kind = Kind::kDone, .ok = ok, .session = visitor.number, .number = piece.number});
}

void StagedDomain::handle_forget(const Record& record) {
  if (const auto found = visitors_.find(record.session); found != visitors_.end())
    found->second.writes.erase(record.write);
}

void StagedDomain::handle_goodbye(const Record& record) {
  if (visitors_.contains(record.session)) end_visit(record.session, false);
}

void StagedDomain::end_visits_on(uint32_t line, std::optional<uint64_t> connection) {
  std::vector<uint64_t> visits;
  for (const auto& [session, visitor] : visitors_)
    if (visitor.line == line && !visitor.has_left &&
        (!connection || *connection == visitor.connection))
      visits.push_back(session);
  for (const uint64_t session : visits) end_visit(session, true);
}

/// Ends the visit. `is_told`: tells the writer, which may wait for answers.
void StagedDomain::end_visit(uint64_t session, bool is_told) {
  Visitor& visitor = visitors_.at(session);
  if (is_told && !visitor.has_left)
    tell(visitor.line, {.kind = Kind::kRing, .ok = false, .session = visitor.number});
  if (visitor.arrivals > 0) {
    visitor.has_left = true;
    return;
  }
  close_ring(std::move(visitor.ring), visitor.door, visitor.is_stranger);
  const uint32_t line = visitor.line;
  visitors_.erase(session);
  leave_line(line);
}

}  // namespace braid::fabric::staged
