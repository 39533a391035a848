#include "transfer/sim/baselines.h"

#include <algorithm>
#include <array>
#include <unordered_map>

namespace braid::transfer::sim {
namespace {

class Random final : public SprayPolicy {
 public:
  explicit Random(uint64_t seed) : random_(seed) {}
  std::optional<size_t> choose(const SliceView&, std::span<const WayView> ways) override {
    return random_.below(ways.size());
  }
  void delivered(uint32_t, uint64_t, uint64_t) override {}

 private:
  fabric::sim::Random random_;
};

class RoundRobin final : public SprayPolicy {
 public:
  std::optional<size_t> choose(const SliceView&, std::span<const WayView> ways) override {
    return turn_++ % ways.size();
  }
  void delivered(uint32_t, uint64_t, uint64_t) override {}

 private:
  size_t turn_ = 0;
};

class Hash final : public SprayPolicy {
 public:
  std::optional<size_t> choose(const SliceView& slice, std::span<const WayView> ways) override {
    return fabric::sim::Random(slice.address).below(ways.size());
  }
  void delivered(uint32_t, uint64_t, uint64_t) override {}
};

class Fixed final : public SprayPolicy {
 public:
  std::optional<size_t> choose(const SliceView& slice, std::span<const WayView> ways) override {
    return slice.source % ways.size();
  }
  void delivered(uint32_t, uint64_t, uint64_t) override {}
};

// The lowest product wins. The bytes in flight are all that were bound, since nothing waits.
// Source: TENT, 3.3.1; the penalties and the weight of history are those of its public code.
class Product final : public SprayPolicy {
 public:
  explicit Product(double rail_gbps) : rail_gbps_(rail_gbps) {}
  std::optional<size_t> choose(const SliceView& slice, std::span<const WayView> ways) override {
    constexpr std::array<double, 3> kAffinity = {1, 5, 10};
    std::optional<size_t> best;
    double least = 0;
    for (size_t i = 0; i < ways.size(); ++i) {
      const double load =
          static_cast<double>(ways[i].in_flight_bytes + slice.size_bytes) / rail_gbps_;
      const double score =
          load * latency_of(ways[i].path) * kAffinity[std::min<size_t>(ways[i].tier, 2)];
      if (best && score >= least) continue;
      best = i;
      least = score;
    }
    return best;
  }
  void delivered(uint32_t path, uint64_t, uint64_t took_ns) override {
    constexpr double kHistory = 0.01;
    double& latency_us = latency_us_.try_emplace(path, kFirstUs).first->second;
    latency_us = kHistory * latency_us + (1 - kHistory) * static_cast<double>(took_ns) / 1000;
  }

 private:
  static constexpr double kFirstUs = 10;
  double latency_of(uint32_t path) const {
    const auto known = latency_us_.find(path);
    return known == latency_us_.end() ? kFirstUs : known->second;
  }

  double rail_gbps_;
  std::unordered_map<uint32_t, double> latency_us_;
};

}  // namespace

const std::vector<Method>& all_methods() {
  static const std::vector<Method> methods = {Method::kBraid,      Method::kMooncake,
                                              Method::kRoundRobin, Method::kHash,
                                              Method::kFixed,      Method::kProduct};
  return methods;
}

const char* method_name(Method method) {
  switch (method) {
    case Method::kBraid: return "braid";
    case Method::kMooncake: return "mooncake";
    case Method::kRoundRobin: return "round robin";
    case Method::kHash: return "hash";
    case Method::kFixed: return "fixed rail";
    case Method::kProduct: return "product rule";
  }
  return "unknown";
}

bool takes_any_pair(Method method) { return method == Method::kMooncake; }
bool leaves_first_tier(Method method) {
  return method == Method::kBraid || method == Method::kProduct;
}

SchedulerOptions options_of(Method method, uint64_t seed) {
  SchedulerOptions options;
  options.seed = seed;
  if (method == Method::kBraid) return options;
  options.is_window_limited = false;
  options.heals = false;
  options.yields_to_urgent = false;
  if (method != Method::kProduct) options.slices.slices_max = uint64_t{1} << 32;
  return options;
}

std::unique_ptr<SprayPolicy> policy_of(Method method, double rail_gbps, uint64_t seed) {
  switch (method) {
    case Method::kMooncake: return std::make_unique<Random>(seed);
    case Method::kRoundRobin: return std::make_unique<RoundRobin>();
    case Method::kHash: return std::make_unique<Hash>();
    case Method::kFixed: return std::make_unique<Fixed>();
    case Method::kProduct: return std::make_unique<Product>(rail_gbps);
    case Method::kBraid: break;
  }
  return std::make_unique<LateBinding>();
}

}  // namespace braid::transfer::sim
