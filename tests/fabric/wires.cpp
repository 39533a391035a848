#include "fabric/wires.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>

#include "fabric/fake_provider/use.h"
#include "fabric/ofi/domain.h"
#include "fabric/progress_thread.h"
#include "fabric/sim/network.h"
#include "simulation/simulation.h"
#include "tools/rail_sockets.h"

namespace braid::fabric::test {
namespace {

class SimulatedWire final : public Wire {
 public:
  explicit SimulatedWire(const sim::NetworkOptions& options) : network_(simulation_, 17, options) {
    for (int side = 0; side < 2; ++side) network_.add_host([] {});
  }
  std::unique_ptr<Domain> open(int side) override {
    auto domain = network_.open_domain(side, places_++);
    opened_[side].push_back(domain.get());
    return domain;
  }
  void pass_time() override {
    if (!simulation_.step(simulation::kForever - 1))
      simulation_.advance_clock(simulation_.now() + simulation::from_us(1));
  }
  uint64_t now_ns() override { return simulation::to_ns(simulation_.now()); }
  bool break_rail(int side, int index) override {
    network_.cut(*opened_[side].at(static_cast<size_t>(index)), sim::Break::kFails);
    return true;
  }
  void mend_rail(int side, int index) override {
    network_.mend(*opened_[side].at(static_cast<size_t>(index)));
  }

 private:
  std::vector<const Domain*> opened_[2];
  simulation::Simulation simulation_{{}};
  sim::Network network_;
  uint64_t places_ = 0;
};

WireKind simulated(const char* name, const sim::NetworkOptions& options) {
  return {name, [options] { return std::make_unique<SimulatedWire>(options); }};
}

class OfiWire final : public Wire {
 public:
  explicit OfiWire(const ofi::Quirks& quirks, bool has_thread = false)
      : quirks_(quirks), has_thread_(has_thread) {
    use_fake_providers();
  }
  /// Each of a process's domains at an address of its own.
  std::unique_ptr<Domain> open(int side) override {
    auto domain = ofi::open_domain(quirks_, address(side, opened_[side]++)).value();
    return has_thread_ ? with_progress_thread(std::move(domain)) : std::move(domain);
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
  const bool has_thread_;
  int opened_[2] = {0, 0};
};

WireKind libfabric(const char* name, const ofi::Quirks& quirks, bool is_fake = false) {
  return {name, [&quirks] { return std::make_unique<OfiWire>(quirks); }, is_fake};
}

WireKind with_thread(WireKind kind, const ofi::Quirks& quirks) {
  kind.name += "_with_thread";
  kind.has_thread = true;
  kind.make = [&quirks] { return std::make_unique<OfiWire>(quirks, true); };
  return kind;
}

sim::NetworkOptions software() {
  sim::NetworkOptions options;
  options.removal_fences = false;
  options.lands_when_polled = true;
  options.full_chance = 0.3;
  return options;
}

class HostBytes final : public Memory {
 public:
  explicit HostBytes(size_t size_bytes) : bytes_(size_bytes) {}
  MutableBytes bytes() override { return bytes_; }
  std::vector<std::byte> get() const override { return bytes_; }
  void put(const std::vector<std::byte>& bytes) override {
    std::copy(bytes.begin(), bytes.end(), bytes_.begin());
  }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace

std::unique_ptr<Memory> Wire::memory(int, size_t size_bytes) {
  return std::make_unique<HostBytes>(size_bytes);
}

const std::vector<WireKind>& host_wire_kinds() {
  static const std::vector<WireKind> kinds = {
      simulated("simulated", {}),
      simulated("simulated_software", software()),
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
      with_thread(libfabric("tcp", ofi::tcp_quirks()), ofi::tcp_quirks())};
  return kinds;
}

}  // namespace braid::fabric::test
