#include "transfer/shares.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <utility>

#include "base/fnv.h"
#include "base/try.h"
#include "transfer/providers.h"

namespace braid::transfer {
namespace {

constexpr uint64_t kMagic = 0x3230726168736220;  // " bshar02": of this layout
/// Rows of the table have one size. An engine uses its other NICs all the same, but shares them
/// with no other process.
constexpr size_t kNicsMax = 16;

/// On a busy host a live process may not run for as long as kStoppedNs. A process that is silent
/// for longer has been stopped. If a process is silent for kDeadNs, the kernel is asked whether it
/// has died.
constexpr uint64_t kStoppedNs = 50'000'000;
constexpr uint64_t kDeadNs = ShareRules{}.dead_after_ns;

constexpr uint64_t kActive = 1, kFull = 2;  // bits

/// Of the network namespace and the NIC's address. 0: the rail uses no NIC.
uint64_t key_of(const RailDescription& rail) {
  if (stays_in_host(rail.provider)) return 0;
  struct stat space {};
  (void)stat("/proc/self/ns/net", &space);
  return fnv(std::to_string(space.st_ino) + " " + rail.host_address) | 1;
}

}  // namespace

struct HostShares::SharedNic {
  std::atomic<uint64_t> key;  // 0: an unused one
  std::atomic<uint64_t> delivered_bytes;
  std::atomic<uint64_t> rate;  // bytes a second
  std::atomic<uint64_t> flags;
};

struct HostShares::Row {
  std::atomic<uint64_t> beat_ns;  // CLOCK_MONOTONIC
  std::array<SharedNic, kNicsMax> nics;
};

std::string HostShares::usual_name() { return "/braid-transfer2-" + std::to_string(geteuid()); }

Result<std::unique_ptr<HostShares>> HostShares::open(const std::string& name,
                                                     const std::vector<RailDescription>& rails) {
  BRAID_LET(table, SharedTable::open(name, kMagic, sizeof(Row)));
  std::vector<Nic> nics = nics_of(rails);
  const auto clear = [&](void* memory) {
    Row& row = *static_cast<Row*>(memory);
    row.beat_ns = 0;
    for (size_t i = 0; i < kNicsMax; ++i) {
      row.nics[i].delivered_bytes = row.nics[i].rate = row.nics[i].flags = 0;
      row.nics[i].key = i < nics.size() ? nics[i].key : 0;
    }
  };
  if (!table->claim(clear))
    return Status::error("more than " + std::to_string(SharedTable::kRows) +
                             " transfer engines of this user share the host",
                         "This one does not know of the others");
  return std::unique_ptr<HostShares>(
      new HostShares(std::move(table), std::move(nics)));  // owner: the caller
}

/// NICs beyond kNicsMax are not shared.
std::vector<HostShares::Nic> HostShares::nics_of(const std::vector<RailDescription>& rails) {
  std::vector<Nic> nics;
  for (size_t rail = 0; rail < rails.size(); ++rail) {
    const uint64_t key = key_of(rails[rail]);
    if (key == 0) continue;
    auto nic =
        std::find_if(nics.begin(), nics.end(), [&](const Nic& each) { return each.key == key; });
    if (nic == nics.end() && nics.size() == kNicsMax) continue;
    if (nic == nics.end()) nic = nics.insert(nics.end(), Nic{key, {}, {}});
    nic->rails.push_back({rail});
  }
  return nics;
}

Result<std::vector<RailLoad>> HostShares::loads(const std::string& name,
                                                const std::vector<RailDescription>& rails) {
  BRAID_LET(table, SharedTable::open(name, kMagic, sizeof(Row)));
  const std::vector<Nic> nics = nics_of(rails);
  std::vector<RailLoad> all;
  for (size_t index = 0; index < SharedTable::kRows; ++index) {
    if (!table->is_alive(index)) continue;
    const Row& row = *static_cast<const Row*>(table->row(index));
    for (const SharedNic& shown : row.nics)
      for (const Nic& nic : nics)
        if (shown.key == nic.key)
          all.push_back({nic.rails.front().rail, table->pid(index),
                         static_cast<double>(shown.rate) / 1e9, shown.delivered_bytes,
                         (shown.flags & kActive) != 0});
  }
  return all;
}

HostShares::HostShares(std::unique_ptr<SharedTable> table, std::vector<Nic> nics)
    : table_(std::move(table)), nics_(std::move(nics)) {}
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
  for (Nic& nic : nics_) {
    const RailShare all = hear(nic, now_ns);
    for (size_t i = 0; i < nic.rails.size(); ++i)
      scheduler.set_share(numbers[nic.rails[i].rail], part_of(all, nic, i, now_ns));
  }
}

/// Writes this engine's row. False: no rail is in use.
bool HostShares::tell(Scheduler& scheduler, const std::vector<uint32_t>& numbers, uint64_t now_ns) {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  Row& own = row(*table_->own_row());
  bool is_active = false;
  for (size_t i = 0; i < nics_.size(); ++i) {
    RailUse sum;
    for (RailOfNic& each : nics_[i].rails) {
      const RailUse use = scheduler.take_use(numbers[each.rail], now_ns);
      each.told = each.pace.tell(use, now_ns);
      sum.delivered_bytes += use.delivered_bytes;
      sum.is_active = sum.is_active || use.is_active;
      sum.is_full = sum.is_full || use.is_full;
    }
    const ShareTold told = nics_[i].pace.tell(sum, now_ns);
    SharedNic& shown = own.nics[i];
    shown.delivered_bytes.store(sum.delivered_bytes, kRelaxed);
    shown.rate.store(static_cast<uint64_t>(told.rate_gbps * 1e9), kRelaxed);
    shown.flags.store((told.is_active ? kActive : 0) | (told.is_full ? kFull : 0), kRelaxed);
    is_active = is_active || told.is_active;
  }
  own.beat_ns.store(now_ns, kRelaxed);
  return is_active;
}

/// Divides the engine's part of a NIC among its rails there, as engines divide the NIC. An idle
/// rail may begin with all of the part.
RailShare HostShares::part_of(const RailShare& all, const Nic& nic, size_t rail, uint64_t now_ns) {
  const bool is_whole = all.share == 1 && all.gbps == 0;
  if (is_whole || !nic.rails[rail].told.is_active) return all;
  size_t mine = 0;
  rows_.clear();
  for (size_t i = 0; i < nic.rails.size(); ++i) {
    const ShareTold& told = nic.rails[i].told;
    if (i == rail) mine = rows_.size();
    if (told.is_active) rows_.push_back({i + 1, now_ns, told.rate_gbps, told.is_full});
  }
  const double part = all.gbps > 0 ? share_of(rows_, mine, all.gbps, now_ns)
                                   : 1 / static_cast<double>(rows_.size());
  return {all.share * part, all.gbps * part};
}

/// Reads the rows of all engines. Any process of this user may have written them, so their values
/// are limited.
RailShare HostShares::hear(Nic& nic, uint64_t now_ns) {
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
    for (const SharedNic& shown : other.nics) {
      if (shown.key.load(kRelaxed) != nic.key) continue;
      heard.members = fnv_step(heard.members, pid * SharedTable::kRows + index);
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
  return is_mine_active ? nic.pace.decide(heard, now_ns) : RailShare{};
}

}  // namespace braid::transfer
