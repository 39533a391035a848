#include "fabric/wires.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include <chrono>

#include "fabric/endpoints.h"
#include "fabric/fake_provider/use.h"
#include "fabric/ofi/domain.h"
#include "fabric/progress_thread.h"
#include "fabric/sim/network.h"
#include "simulation/simulation.h"
#include "tools/rail_sockets.h"

namespace braid::fabric::test {
namespace {

constexpr size_t kSeveral = 3;

class SimulatedWire final : public Wire {
 public:
  explicit SimulatedWire(const sim::NetworkOptions& options, size_t endpoints)
      : network_(simulation_, 17, options), endpoints_(endpoints) {
    for (int side = 0; side < 2; ++side) network_.add_host([] {});
  }
  std::unique_ptr<Domain> open(int side) override {
    std::vector<std::unique_ptr<Domain>> endpoints;
    std::vector<const Domain*>& opened = opened_[side].emplace_back();
    while (endpoints.size() < endpoints_) {
      endpoints.push_back(network_.open_domain(side, places_++));
      opened.push_back(endpoints.back().get());
    }
    if (endpoints_ == 1) return std::move(endpoints.front());
    return join_endpoints(std::move(endpoints), {64, 64});
  }
  void pass_time() override {
    if (!simulation_.step(simulation::kForever - 1))
      simulation_.advance_clock(simulation_.now() + simulation::from_us(1));
  }
  uint64_t now_ns() override { return simulation::to_ns(simulation_.now()); }
  bool break_rail(int side, int index) override {
    for (const Domain* endpoint : opened_[side].at(static_cast<size_t>(index)))
      network_.cut(*endpoint, sim::Break::kFails);
    return true;
  }
  bool break_further_endpoints(int side, int index) override {
    const auto& endpoints = opened_[side].at(static_cast<size_t>(index));
    for (size_t i = 1; i < endpoints.size(); ++i) network_.cut(*endpoints[i], sim::Break::kFails);
    return endpoints.size() > 1;
  }
  void mend_rail(int side, int index) override {
    for (const Domain* endpoint : opened_[side].at(static_cast<size_t>(index)))
      network_.mend(*endpoint);
  }

 private:
  std::vector<std::vector<const Domain*>> opened_[2];  // each domain's endpoints
  simulation::Simulation simulation_{{}};
  sim::Network network_;
  const size_t endpoints_;
  uint64_t places_ = 0;
};

WireKind simulated(const char* name, const sim::NetworkOptions& options, size_t endpoints = 1) {
  return {name, [=] { return std::make_unique<SimulatedWire>(options, endpoints); }};
}

class OfiWire final : public Wire {
 public:
  enum class Threads { kNone, kOne, kOfFurtherEndpoints };
  explicit OfiWire(const ofi::Quirks& quirks, Threads threads = Threads::kNone)
      : quirks_(quirks), threads_(threads) {
    use_fake_providers();
  }
  /// Each of a process's domains at an address of its own.
  std::unique_ptr<Domain> open(int side) override {
    const std::string at = address(side, opened_[side]++);
    auto domain = ofi::open_domain(quirks_, at).value();
    if (threads_ == Threads::kNone) return domain;
    if (threads_ == Threads::kOne) return with_progress_thread(std::move(domain));
    std::vector<std::unique_ptr<Domain>> endpoints;
    endpoints.push_back(std::move(domain));
    while (endpoints.size() < kSeveral)
      endpoints.push_back(with_progress_thread(ofi::open_domain(quirks_, at).value()));
    return join_endpoints(std::move(endpoints), {});
  }
  bool break_rail(int side, int index) override {
    const std::string at = address(side, index);
    return quirks_.listens_at_address &&
           tools::break_connections(at) + break_fake_connections(at) > 0;
  }
  void pass_time() override {}
  uint64_t now_ns() override {
    return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  }

 private:
  static std::string address(int side, int index) {
    return "127.0.0." + std::to_string(1 + 4 * side + index % 4);
  }

  const ofi::Quirks& quirks_;
  const Threads threads_;
  int opened_[2] = {0, 0};
};

WireKind libfabric(const char* name, const ofi::Quirks& quirks, bool is_fake = false) {
  return {name, [&quirks] { return std::make_unique<OfiWire>(quirks); }, is_fake};
}

WireKind with_thread(const char* name, const ofi::Quirks& quirks) {
  return {name, [&quirks] { return std::make_unique<OfiWire>(quirks, OfiWire::Threads::kOne); },
          false, true};
}
WireKind with_endpoints(const char* name, const ofi::Quirks& quirks) {
  const auto threads = OfiWire::Threads::kOfFurtherEndpoints;
  return {name, [=, &quirks] { return std::make_unique<OfiWire>(quirks, threads); }, false, true};
}

sim::NetworkOptions software() {
  sim::NetworkOptions options;
  options.removal_fences = false;
  options.lands_when_polled = true;
  options.full_chance = 0.3;
  return options;
}

}  // namespace

const std::vector<WireKind>& host_wire_kinds() {
  static const std::vector<WireKind> kinds = {
      simulated("simulated", {}),
      simulated("simulated_software", software()),
      simulated("simulated_endpoints", {}, kSeveral),
      libfabric("tcp", ofi::tcp_quirks()),
      libfabric("net", ofi::net_quirks()),
      libfabric("shm", ofi::shm_quirks()),
      libfabric("verbs", ofi::verbs_quirks(), true),
      libfabric("efa", ofi::efa_quirks(), true),
  };
  return kinds;
}

const std::vector<WireKind>& threaded_wire_kinds() {
  static const std::vector<WireKind> kinds = {
      with_thread("tcp_with_thread", ofi::tcp_quirks()),
      with_endpoints("tcp_with_endpoints", ofi::tcp_quirks())};
  return kinds;
}

}  // namespace braid::fabric::test
