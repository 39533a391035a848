// The work of one host in a large cluster: the real scheduler with a way to each of its peers. All
// peers fall silent at once and come back, as behind a switch that restarts.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>

#include "transfer/sim/figures.h"

namespace braid::transfer::sim {
namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kSecond = 1000 * kMs;
constexpr uint64_t kSilentNs = 20 * kSecond;
constexpr uint64_t kRoundTripNs = 50'000;
constexpr double kRenewalsPerSecond = 1 / 3.0;  // of a name: kLeaseMs / 3 (directory/store.h)

/// A host that knows `peers`, with one rail.
class KnowsMany {
 public:
  KnowsMany(size_t peers, uint64_t seed) : scheduler_(options_with(seed)) {
    const uint32_t local = scheduler_.add_rail({25});
    for (size_t i = 0; i < peers; ++i) {
      const uint32_t remote = scheduler_.add_rail({25});
      paths_.push_back(scheduler_.add_path({i + 1, local, remote, 25, 10}));
      scheduler_.add_ways({{paths_.back(), 0}});
    }
  }

  /// Probes by second, from the moment at which all fall silent.
  std::vector<uint64_t> run(uint64_t seconds) {
    std::vector<uint64_t> probes(seconds, 0);
    for (const uint32_t path : paths_) scheduler_.path_failed(path, now_ns_);
    const uint64_t begun_ns = now_ns_;
    while (now_ns_ < begun_ns + seconds * kSecond) {
      while (const auto probe = scheduler_.next_probe(now_ns_)) {
        ++probes[(now_ns_ - begun_ns) / kSecond];
        const bool is_back = now_ns_ >= begun_ns + kSilentNs;
        under_way_.push_back({now_ns_ + (is_back ? kRoundTripNs : 0), probe->id, is_back});
      }
      while (!under_way_.empty() && under_way_.front().ends_ns <= now_ns_) {
        const UnderWay ended = under_way_.front();
        under_way_.pop_front();
        scheduler_.ended(ended.probe, ended.is_done ? Ending::kDone : Ending::kFailed, now_ns_);
      }
      while (scheduler_.next_event()) {
      }
      uint64_t next_ns = std::max(now_ns_ + 1000, scheduler_.next_deadline_ns());
      if (!under_way_.empty()) next_ns = std::min(next_ns, under_way_.front().ends_ns);
      now_ns_ = std::max(now_ns_ + 1, next_ns);
    }
    return probes;
  }
  size_t usable() const {
    return static_cast<size_t>(std::count_if(paths_.begin(), paths_.end(), [&](uint32_t path) {
      const PathState state = scheduler_.view(path, now_ns_).state;
      return state == PathState::kUp || state == PathState::kRejoining;
    }));
  }

 private:
  struct UnderWay {
    uint64_t ends_ns;
    uint64_t probe;
    bool is_done;
  };
  static SchedulerOptions options_with(uint64_t seed) {
    SchedulerOptions options;
    options.seed = seed;
    return options;
  }

  Scheduler scheduler_;
  std::vector<uint32_t> paths_;
  std::deque<UnderWay> under_way_;
  uint64_t now_ns_ = kSecond;
};

}  // namespace

Figure cluster_figure(const Clusters&, int seeds) {
  Figure figure{"cluster", "One host of a cluster, by the number of hosts", "", {}, {}, {}, {}};
  figure.notes.push_back(
      "Every host has one rail and a name, and has opened all others. All peers of one host fall "
      "silent for 20 s and come back. Probes are of that host, by the real scheduler; one takes "
      "4 KB. What each peer costs in memory and descriptors is measured: docs/cluster.md.");
  Table table{"Of one host, and of the store",
              {"hosts", "ways", "probes in the 1st second", "in the 10th",
               "in the second after they are back", "ways in use 2 s after that",
               "renewals a second at the store", "Redis requests a second",
               "etcd requests a second", "names asked for when all start"},
              {}};
  for (const size_t hosts : {2, 8, 64, 256, 1000}) {
    constexpr uint64_t kSeconds = kSilentNs / kSecond + 2;
    std::vector<double> probes(kSeconds, 0);
    size_t usable = hosts - 1;
    for (int seed = 1; seed <= seeds; ++seed) {
      KnowsMany host(hosts - 1, static_cast<uint64_t>(seed));
      const std::vector<uint64_t> counted = host.run(kSeconds);
      for (size_t i = 0; i < kSeconds; ++i) probes[i] += static_cast<double>(counted[i]) / seeds;
      usable = std::min(usable, host.usable());
    }
    const double renewals = static_cast<double>(hosts) * kRenewalsPerSecond;
    table.rows.push_back(
        {std::to_string(hosts), std::to_string(hosts - 1), fmt::format("{:.0f}", probes[0]),
         fmt::format("{:.0f}", probes[9]), fmt::format("{:.0f}", probes[kSilentNs / kSecond]),
         std::to_string(usable), fmt::format("{:.1f}", renewals), fmt::format("{:.1f}", renewals),
         fmt::format("{:.1f}", 2 * renewals), std::to_string(hosts * (hosts - 1))});
  }
  figure.tables = {table};
  return figure;
}

}  // namespace braid::transfer::sim
