#include "fabric/ofi/doors.h"

#include <algorithm>
#include <array>
#include <utility>

#include "fabric/ofi/stand_ins.h"

namespace braid::fabric::ofi {
namespace {

constexpr size_t kEventsAtOnce = 64;
constexpr size_t kQuietAtOnce = 8;
constexpr int kLastLooksMax = 64;
constexpr uint32_t kClosingLooks = 100'000;  // then closes regardless of connections

}  // namespace

Doors::~Doors() {
  std::vector<uint32_t> open;
  for (const Door& door : order_)
    if (!door.is_closing) open.push_back(door.number);
  for (const uint32_t door : open) shut(door);
  std::array<Completion, kEventsAtOnce> dropped;
  while (closing_ > 0) poll(dropped, false);
}

Result<Station> Doors::open_station() {
  if (!provider_.chooses_keys()) return Station::open(provider_, &common_);
  return provider_.quirks.opens_slowly ? spare_.take() : Station::open(provider_, nullptr);
}

Result<uint32_t> Doors::open() {
  Result<Station> station = open_station();
  if (!station.ok()) return station.status();
  Door door{next_, std::move(station).value(), {}, {}, 0, false, {}};
  for (const auto& [region, shared] : shared_)
    if (Status failed = share_with(door, region, shared); !failed.ok()) return failed;
  order_.push_back(std::move(door));
  sleepers_.add(order_.back().station);
  doors_[next_] = std::prev(order_.end());
  return next_++;
}

void Doors::close(uint32_t number, std::deque<Completion>& come) {
  if (provider_.quirks.reads_before_close) read_what_has_come(*doors_.at(number), come);
  shut(number);
}

void Doors::shut(uint32_t number) {
  Door& door = *doors_.at(number);
  door.is_closing = true;
  ++closing_;
  if (provider_.quirks.drains_before_close)
    door.connections = connections_.shut_down_at(door.station.name);
  sleepers_.close(door.station);
  end_closed();
}

Result<RemoteRange> Doors::add_region(uint32_t number, uint32_t region, MutableBytes memory,
                                      std::optional<uint64_t> key) {
  Door& door = *doors_.at(number);
  Result<Registration> made =
      register_memory(provider_, *door.station.domain, memory, FI_REMOTE_WRITE, key);
  if (!made.ok()) return made.status();
  door.regions[region] = std::move(made.value().memory);
  return made.value().range;
}

void Doors::remove_region(uint32_t number, uint32_t region) {
  const auto found = doors_.find(number);
  if (found != doors_.end() && !found->second->is_closing) found->second->regions.erase(region);
}

Status Doors::share(uint32_t region, MutableBytes memory, uint64_t key) {
  if (!provider_.chooses_keys()) return {};  // it is registered in the common domain
  const Shared& shared = shared_[region] = {memory, key};
  for (Door& door : order_)
    if (Status failed = share_with(door, region, shared); !failed.ok()) {
      unshare(region);
      return failed;
    }
  return {};
}

Status Doors::share_with(Door& door, uint32_t region, const Shared& shared) {
  Result<Registration> made =
      register_memory(provider_, *door.station.domain, shared.memory, FI_REMOTE_WRITE, shared.key);
  if (!made.ok()) return made.status();
  door.regions[region] = std::move(made.value().memory);
  return {};
}

void Doors::unshare(uint32_t region) {
  if (shared_.erase(region) == 0) return;
  for (Door& door : order_) door.regions.erase(region);
}

size_t Doors::poll(std::span<Completion> completions, bool is_busy) {
  if (order_.empty()) return 0;
  size_t count = 0;
  for (Door& door : order_)
    if (!door.is_quiet()) count += look(door, completions.subspan(count));
  count += look_at_quiet_ones(completions.subspan(count), is_busy || count > 0);
  if (closing_ > 0) end_closed();
  if (!order_.empty()) order_.splice(order_.end(), order_, order_.begin());
  return count;
}

/// Few at a time, in turns, so that what has traffic does not wait for many. Without a descriptor
/// that stays readable, this look may be the only one for a while: it is at all of them.
size_t Doors::look_at_quiet_ones(std::span<Completion> completions, bool is_busy) {
  const size_t most = provider_.quirks.has_wait_descriptor ? kQuietAtOnce : order_.size();
  size_t count = 0, looks = 0;
  auto at = order_.begin();
  for (size_t left = order_.size(); left > 0 && looks < most; --left) {
    const auto door = at++;
    if (!door->is_quiet() || door->pace.waits(is_busy || count > 0)) continue;
    count += look(*door, completions.subspan(count));
    order_.splice(order_.end(), order_, door);
    ++looks;
  }
  return count;
}

size_t Doors::look(Door& door, std::span<Completion> completions) {
  std::array<fi_cq_data_entry, kEventsAtOnce> entries;
  const size_t room = std::min(completions.size(), entries.size());
  if (room == 0) return 0;
  connections_.forget();
  const StandIns stand_ins;  // their places go with the door
  const auto read = [&] { return fi_cq_read(door.station.queue.get(), entries.data(), room); };
  const int64_t answer =
      calls_ != nullptr
          ? calls_->run(RobustCalls::Purpose::kDoorProgress, read).value_or(-FI_EAGAIN)
          : read();
  if (answer == -FI_EAVAIL) {  // a write that was refused
    fi_cq_err_entry error{};
    fi_cq_readerr(door.station.queue.get(), &error, 0);
  }
  size_t count = 0;
  for (int64_t i = 0; i < answer; ++i)
    if (const auto arrival = arrival_of(entries[static_cast<size_t>(i)]))
      completions[count++] = *arrival;
  door.pace.looked(count);
  door.closing_looks += door.is_closing;
  return count;
}

/// To be called before the door is closed: a peer that hears the goodbye takes its sources back.
void Doors::read_what_has_come(Door& door, std::deque<Completion>& come) {
  std::array<Completion, kEventsAtOnce> seen;
  for (int looks = 0; looks < kLastLooksMax; ++looks) {
    const size_t count = look(door, seen);
    if (count == 0) return;
    come.insert(come.end(), seen.begin(), seen.begin() + static_cast<ptrdiff_t>(count));
  }
}

/// Closes the doors whose connections have ended: all that came in there has been read then.
void Doors::end_closed() {
  for (auto door = order_.begin(); door != order_.end();) {
    std::erase_if(door->connections, [](const Connection& each) { return !each.is_open(); });
    const bool is_over = door->connections.empty() || door->closing_looks >= kClosingLooks;
    if (!door->is_closing || !is_over) {
      ++door;
      continue;
    }
    if (calls_ != nullptr) calls_->forget_endpoints();
    sleepers_.remove(door->station);
    door->station.endpoint.reset();  // before the memory: nothing is written there then
    doors_.erase(door->number);
    door = order_.erase(door);
    --closing_;
  }
}

}  // namespace braid::fabric::ofi
