#include "bench/fabric/race.h"

#include <algorithm>
#include <map>

#include "base/median.h"
#include "bench/fabric/buffers.h"
#include "bench/fabric/contenders.h"
#include "bench/fabric/library_contender.h"

namespace braid::bench {
namespace {

constexpr uint64_t kMemoryBytes = 128 << 20;
constexpr uint64_t kUnderWayBytes = 16 << 20;
constexpr uint64_t kDepthMax = 64;
constexpr uint64_t kPagesUnderWayMax = 4 * kPagesAtOnce;
constexpr uint64_t kBarriersWarmUp = 64;  // one after the other
constexpr uint64_t kBarriersMax = 1 << 16;
constexpr uint64_t kWarmUpMax = 2048;
constexpr double kTurnSecondsMax = 1;
constexpr uint64_t kArrivalLimitNs = 5'000'000'000;

uint64_t parts_at_once(Pattern pattern) {
  switch (pattern) {
    case Pattern::kPaged: return kPagesAtOnce;
    case Pattern::kScatter: return kMembers;
    default: return 1;
  }
}

uint64_t depth_of(const Load& load) {
  if (load.pattern == Pattern::kBarrier) return 1;  // the next begins when this one has ended
  const uint64_t most = load.pattern == Pattern::kPaged ? kPagesUnderWayMax : kDepthMax;
  return std::clamp(kUnderWayBytes / load.size_bytes, load.parts_at_once, most);
}

struct Turn {
  double rate = 0;  // a second
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
  return Turn{static_cast<double>(load.count) * 1e9 / took_ns, arrived_ns.has_value()};
}

Spread spread_of(const std::vector<double>& values) {
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  return {median(values), *least, *most};
}

/// All turns of one contender at one size.
struct Turns {
  std::vector<double> rates;
  bool is_verified = true;

  void add(const Turn& turn) {
    rates.push_back(turn.rate);
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
    if (options.is_against_plain && options.pattern == Pattern::kPaged)
      opponents_.push_back(
          std::make_unique<PlainContender>(options.rails, target, buffers.source(), true));
    if (options.is_against_engine)
      opponents_.push_back(
          std::make_unique<EngineContender>(options.rails, target, buffers.source()));
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
    RaceResult result{size_bytes, spread_of(braid.rates), braid.is_verified, {}};
    for (const auto& opponent : opponents_)
      result.opponents.push_back(compare(*opponent, braid, others[opponent.get()]));
    return result;
  }

  static Opponent compare(const Contender& opponent, const Turns& braid, const Turns& turns) {
    std::vector<double> ratios;
    for (size_t i = 0; i < turns.rates.size(); ++i)
      ratios.push_back(braid.rates[i] / turns.rates[i]);
    return {opponent.name(), spread_of(turns.rates), spread_of(ratios), turns.is_verified};
  }

  Result<Load> load_of(uint64_t size_bytes) {
    Load load{options_.pattern, size_bytes, parts_at_once(options_.pattern)};
    const uint64_t unit = load.parts_at_once;
    const bool is_barrier = options_.pattern == Pattern::kBarrier;
    const uint64_t places = is_barrier ? kBarriersMax : kMemoryBytes / size_bytes / unit * unit;
    const uint64_t warm_up_max = is_barrier ? kBarriersWarmUp : kWarmUpMax;
    load.depth = depth_of(load);
    load.count = unit;
    const auto opened = affordable(load);  // opens connections
    if (!opened.ok()) return opened.status();
    load.count = std::clamp(places / 4, unit, warm_up_max) / unit * unit;
    const auto wanted = affordable(load);
    if (!wanted.ok()) return wanted.status();
    load.count = std::clamp(wanted.value() / unit * unit, unit, places);
    return load;
  }

  /// As many writes as braid makes in the time of a turn, and fewer where that would take an
  /// opponent too long. Each takes a turn of this load for it.
  Result<uint64_t> affordable(const Load& load) {
    const auto own = take_turn(braid_, load, buffers_);
    if (!own.ok()) return own.status();
    double wanted = own.value().rate * options_.turn_seconds;
    for_opponents([&](Contender& opponent) {
      const auto turn = take_turn(opponent, load, buffers_);
      if (turn.ok()) wanted = std::min(wanted, turn.value().rate * kTurnSecondsMax);
      return turn.status();
    });
    return static_cast<uint64_t>(wanted);
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
  LibraryContender braid_;
  std::vector<std::unique_ptr<Contender>> opponents_;
  std::vector<Waiver> waivers_;
};

}  // namespace

uint64_t largest_size_bytes(Pattern pattern) { return kMemoryBytes / parts_at_once(pattern); }

Result<RaceReport> race(const RaceOptions& options, const Progress& progress) {
  const auto buffers = Buffers::map(kMemoryBytes, options.are_pages_huge);
  if (!buffers.ok()) return buffers.status();
  std::vector<PeerProgram::Opened> peers;
  for (const PeerCommand& command : options.peers)
    peers.push_back(
        PeerProgram::open(command, options.rails.provider(), options.pattern, buffers.value()));
  TargetProcess target({options.rails, options.pattern, options.is_against_engine},
                       buffers.value());
  return Race(options, buffers.value(), std::move(peers), target).run(progress);
}

}  // namespace braid::bench
