#include "transfer/shares.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <utility>

#include "base/try.h"

namespace braid::transfer {
namespace {

constexpr uint64_t kMagic = 0x3130726168736220;  // " bshar01": of this layout
/// Rows of the table have one size. An engine has up to 64 rails (kRailsInDescriptionMax). Those
/// after the 16th are used all the same, but share their NICs with no other process.
constexpr size_t kSharedRailsMax = 16;

/// On a busy host a live process may not run for as long as kStoppedNs. A process that is silent
/// for longer has been stopped. If a process is silent for kDeadNs, the kernel is asked whether it
/// has died.
constexpr uint64_t kStoppedNs = 50'000'000;
constexpr uint64_t kDeadNs = ShareRules{}.dead_after_ns;

constexpr uint64_t kActive = 1, kFull = 2;  // bits

/// FNV-1a of the network namespace and the NIC's address; never 0.
uint64_t key_of(const RailDescription& rail) {
  if (rail.provider == "shm") return 0;  // no NIC
  struct stat space {};
  (void)stat("/proc/self/ns/net", &space);
  uint64_t key = 0xcbf29ce484222325;
  const std::string text = std::to_string(space.st_ino) + " " + rail.host_address;
  for (const char letter : text) key = (key ^ static_cast<uint8_t>(letter)) * 0x100000001b3;
  return key | 1;
}

}  // namespace

struct HostShares::SharedRail {
  std::atomic<uint64_t> key;  // 0: an unused one
  std::atomic<uint64_t> delivered_bytes;
  std::atomic<uint64_t> rate;  // bytes a second
  std::atomic<uint64_t> flags;
};

struct HostShares::Row {
  std::atomic<uint64_t> beat_ns;  // CLOCK_MONOTONIC
  std::array<SharedRail, kSharedRailsMax> rails;
};

std::string HostShares::usual_name() { return "/braid-transfer1-" + std::to_string(geteuid()); }

Result<std::unique_ptr<HostShares>> HostShares::open(const std::string& name,
                                                     const std::vector<RailDescription>& rails) {
  BRAID_LET(table, SharedTable::open(name, kMagic, sizeof(Row)));
  std::vector<uint64_t> keys;
  for (const RailDescription& rail : rails)
    keys.push_back(keys.size() < kSharedRailsMax ? key_of(rail) : 0);
  const auto clear = [&](void* memory) {
    Row& row = *static_cast<Row*>(memory);
    row.beat_ns = 0;
    for (size_t i = 0; i < kSharedRailsMax; ++i) {
      row.rails[i].delivered_bytes = row.rails[i].rate = row.rails[i].flags = 0;
      row.rails[i].key = i < keys.size() ? keys[i] : 0;
    }
  };
  if (!table->claim(clear))
    return Status::error("more than " + std::to_string(SharedTable::kRows) +
                             " transfer engines of this user share the host",
                         "This one does not know of the others");
  return std::unique_ptr<HostShares>(
      new HostShares(std::move(table), std::move(keys)));  // owner: the caller
}

Result<std::vector<RailLoad>> HostShares::loads(const std::string& name,
                                                const std::vector<RailDescription>& rails) {
  BRAID_LET(table, SharedTable::open(name, kMagic, sizeof(Row)));
  std::vector<RailLoad> all;
  for (size_t index = 0; index < SharedTable::kRows; ++index) {
    if (!table->is_alive(index)) continue;
    const Row& row = *static_cast<const Row*>(table->row(index));
    for (const SharedRail& shown : row.rails)
      for (size_t rail = 0; rail < rails.size(); ++rail)
        if (const uint64_t key = key_of(rails[rail]); key != 0 && shown.key == key)
          all.push_back({rail, table->pid(index), static_cast<double>(shown.rate) / 1e9,
                         shown.delivered_bytes, (shown.flags & kActive) != 0});
  }
  return all;
}

HostShares::HostShares(std::unique_ptr<SharedTable> table, std::vector<uint64_t> keys)
    : table_(std::move(table)), keys_(std::move(keys)), paces_(keys_.size()) {}
HostShares::~HostShares() = default;

HostShares::Row& HostShares::row(size_t index) const {
  return *static_cast<Row*>(table_->row(index));
}

void HostShares::look(Scheduler& scheduler, const std::vector<uint32_t>& numbers, uint64_t now_ns) {
  const bool is_active = scheduler.open_postings() > 0 || scheduler.has_backlog();
  if ((!is_active && !was_active_) || now_ns < next_ns_) return;
  next_ns_ = now_ns + kShareBeatNs;
  was_active_ = tell(scheduler, numbers, now_ns);
  if (!was_active_) return;
  has_neighbours_ = false;
  for (size_t rail = 0; rail < keys_.size(); ++rail)
    if (keys_[rail] != 0) scheduler.set_share(numbers[rail], hear(rail, now_ns));
}

/// Writes this engine's row. False: no rail is in use.
bool HostShares::tell(Scheduler& scheduler, const std::vector<uint32_t>& numbers, uint64_t now_ns) {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  Row& own = row(*table_->own_row());
  bool is_active = false;
  for (size_t rail = 0; rail < keys_.size(); ++rail) {
    if (keys_[rail] == 0) continue;
    const RailUse use = scheduler.take_use(numbers[rail], now_ns);
    const ShareTold told = paces_[rail].tell(use, now_ns);
    SharedRail& shown = own.rails[rail];
    shown.delivered_bytes.store(use.delivered_bytes, kRelaxed);
    shown.rate.store(static_cast<uint64_t>(told.rate_gbps * 1e9), kRelaxed);
    shown.flags.store((told.is_active ? kActive : 0) | (told.is_full ? kFull : 0), kRelaxed);
    is_active = is_active || told.is_active;
  }
  own.beat_ns.store(now_ns, kRelaxed);
  return is_active;
}

/// Reads the rows of all engines. Any process of this user may have written them, so their values
/// are limited.
RailShare HostShares::hear(size_t rail, uint64_t now_ns) {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  constexpr double kRateMax = 1e13;
  ShareHeard heard;
  rows_.clear();
  bool is_mine_active = false;
  for (size_t index = 0; index < SharedTable::kRows; ++index) {
    const auto pid = static_cast<uint64_t>(static_cast<uint32_t>(table_->pid(index)));
    if (pid == 0) continue;
    const bool is_mine = index == *table_->own_row();
    const Row& other = row(index);
    const uint64_t beat_ns = other.beat_ns.load(kRelaxed);
    const uint64_t silent_ns = now_ns > beat_ns ? now_ns - beat_ns : beat_ns - now_ns;
    const bool is_alive =
        silent_ns <= kDeadNs || (silent_ns <= kStoppedNs && table_->is_alive(index));
    for (const SharedRail& shown : other.rails) {
      if (shown.key.load(kRelaxed) != keys_[rail]) continue;
      heard.members = (heard.members ^ (pid * SharedTable::kRows + index)) * 0x100000001b3;
      heard.delivered_bytes += shown.delivered_bytes.load(kRelaxed);
      has_neighbours_ = has_neighbours_ || !is_mine;
      const uint64_t flags = shown.flags.load(kRelaxed);
      if (!is_alive || (flags & kActive) == 0) break;
      heard.is_full = heard.is_full || (flags & kFull) != 0;
      if (is_mine) heard.mine = rows_.size();
      is_mine_active = is_mine_active || is_mine;
      const double rate = std::min(static_cast<double>(shown.rate.load(kRelaxed)), kRateMax);
      rows_.push_back({pid, now_ns, rate / 1e9, (flags & kFull) != 0});
      break;
    }
  }
  heard.rows = rows_;
  return is_mine_active ? paces_[rail].decide(heard, now_ns) : RailShare{};
}

}  // namespace braid::transfer
