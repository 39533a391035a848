#include "bench/fabric/race.h"

#include <algorithm>
#include <map>

#include "bench/fabric/buffers.h"
#include "bench/fabric/contenders.h"

namespace braid::bench {
namespace {

constexpr uint64_t kMemoryBytes = 128 << 20;
constexpr uint64_t kUnderWayBytes = 16 << 20;
constexpr uint64_t kDepthMax = 64;
constexpr uint64_t kPagesUnderWayMax = 4 * kPagesAtOnce;
constexpr uint64_t kWarmUpMax = 16384;
constexpr double kTurnSecondsMax = 1;
constexpr uint64_t kArrivalLimitNs = 5'000'000'000;

struct Turn {
  double gbps = 0;
  bool is_verified = false;
};

Result<Turn> take_turn(Contender& contender, const Load& load, const Buffers& buffers) {
  buffers.clear(load);
  Status status = contender.prepare(load);
  if (!status.ok()) return status;
  const uint64_t begin_ns = now_ns();
  status = contender.write(load);
  if (!status.ok()) return status;
  const uint64_t said_ns = now_ns();
  const auto arrived_ns = buffers.arrived_ns(load, said_ns + kArrivalLimitNs);
  contender.rest();
  const double took_ns = static_cast<double>(arrived_ns.value_or(said_ns) - begin_ns);
  return Turn{static_cast<double>(load.total_bytes()) / took_ns, arrived_ns.has_value()};
}

Spread spread_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {values[values.size() / 2], values.front(), values.back()};
}

/// All turns of one contender at one size.
struct Turns {
  std::vector<double> gbps;
  bool is_verified = true;

  void add(const Turn& turn) {
    gbps.push_back(turn.gbps);
    is_verified = is_verified && turn.is_verified;
  }
};

class Race {
 public:
  Race(const RaceOptions& options, const Buffers& buffers, std::vector<PeerProgram::Opened> peers,
       TargetProcess& target)
      : options_(options), buffers_(buffers), braid_(options.rails, target, buffers.source()) {
    if (options.is_against_plain)
      opponents_.push_back(
          std::make_unique<PlainContender>(options.rails, target, buffers.source()));
    for (PeerProgram::Opened& peer : peers) {
      if (peer.contender != nullptr)
        opponents_.push_back(std::move(peer.contender));
      else
        waivers_.push_back(peer.waiver);
    }
  }

  Result<RaceReport> run(const Progress& progress) {
    RaceReport report;
    for (const uint64_t size_bytes : options_.sizes_bytes) {
      auto result = at_size(size_bytes, progress);
      if (!result.ok()) return result.status();
      report.results.push_back(std::move(result).value());
    }
    report.waivers = waivers_;
    return report;
  }

 private:
  Result<RaceResult> at_size(uint64_t size_bytes, const Progress& progress) {
    progress(size_bytes, 0);
    const auto load = load_of(size_bytes);
    if (!load.ok()) return load.status();
    Turns braid;
    std::map<const Contender*, Turns> others;
    for (int turn = 1; turn <= options_.turns; ++turn) {
      progress(size_bytes, turn);
      const auto own = take_turn(braid_, load.value(), buffers_);
      if (!own.ok()) return own.status();
      braid.add(own.value());
      for_opponents([&](Contender& opponent) {
        const auto taken = take_turn(opponent, load.value(), buffers_);
        if (taken.ok()) others[&opponent].add(taken.value());
        return taken.status();
      });
    }
    RaceResult result{size_bytes, spread_of(braid.gbps), braid.is_verified, {}};
    for (const auto& opponent : opponents_)
      result.opponents.push_back(compare(*opponent, braid, others[opponent.get()]));
    return result;
  }

  static Opponent compare(const Contender& opponent, const Turns& braid, const Turns& turns) {
    std::vector<double> ratios;
    for (size_t i = 0; i < turns.gbps.size(); ++i) ratios.push_back(braid.gbps[i] / turns.gbps[i]);
    return {opponent.name(), spread_of(turns.gbps), spread_of(ratios), turns.is_verified};
  }

  /// As many writes as braid makes in the time of a turn, and fewer where that would take an
  /// opponent too long. The turns that this takes also open connections and touch the memory.
  Result<Load> load_of(uint64_t size_bytes) {
    Load load{options_.is_paged, size_bytes};
    const uint64_t unit = load.unit();
    const uint64_t places = kMemoryBytes / size_bytes / unit * unit;
    load.depth = std::clamp<uint64_t>(kUnderWayBytes / size_bytes, unit,
                                      load.is_paged ? kPagesUnderWayMax : kDepthMax);
    load.count = std::clamp<uint64_t>(places / 4, unit, kWarmUpMax) / unit * unit;
    const auto own = take_turn(braid_, load, buffers_);
    if (!own.ok()) return own.status();
    double bytes = own.value().gbps * options_.turn_seconds * 1e9;
    for_opponents([&](Contender& opponent) {
      const auto turn = take_turn(opponent, load, buffers_);
      if (turn.ok()) bytes = std::min(bytes, turn.value().gbps * kTurnSecondsMax * 1e9);
      return turn.status();
    });
    const auto wanted = static_cast<uint64_t>(bytes / static_cast<double>(size_bytes));
    load.count = std::clamp(wanted / unit * unit, unit, places);
    return load;
  }

  /// Who fails takes no further part.
  void for_opponents(const std::function<Status(Contender&)>& call) {
    std::erase_if(opponents_, [&](const auto& opponent) {
      const Status status = call(*opponent);
      if (!status.ok())
        waivers_.push_back({opponent->name(), Waiver::Kind::kFailed, status.message()});
      return !status.ok();
    });
  }

  const RaceOptions& options_;
  const Buffers& buffers_;
  BraidContender braid_;
  std::vector<std::unique_ptr<Contender>> opponents_;
  std::vector<Waiver> waivers_;
};

}  // namespace

uint64_t largest_size_bytes(bool is_paged) {
  return is_paged ? kMemoryBytes / kPagesAtOnce : kMemoryBytes;
}

Result<RaceReport> race(const RaceOptions& options, const Progress& progress) {
  const auto buffers = Buffers::map(kMemoryBytes, options.are_pages_huge);
  if (!buffers.ok()) return buffers.status();
  std::vector<PeerProgram::Opened> peers;
  for (const PeerCommand& command : options.peers)
    peers.push_back(PeerProgram::open(command, options.rails.quirks->provider, options.is_paged,
                                      buffers.value()));
  TargetProcess target(options.rails, buffers.value().target());
  return Race(options, buffers.value(), std::move(peers), target).run(progress);
}

}  // namespace braid::bench
