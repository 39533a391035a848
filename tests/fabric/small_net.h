// Engines on a simulated network, in a few lines: for tests of what peers do to each other.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "fabric/engine.h"
#include "fabric/sim/network.h"
#include "simulation/simulation.h"

namespace braid::fabric::test {

/// Who lives is what the test says.
class TestProcesses final : public Processes {
 public:
  TestProcesses(uint32_t process, const std::vector<uint32_t>& ended)
      : process_(process), ended_(ended) {}
  Origin self() const override { return {{1, 2}, 3, 4, process_}; }
  void watch(uint64_t peer, const Origin& origin) override {
    if (origin.process != 0) watched_[peer] = origin.process;
  }
  void forget(uint64_t peer) override { watched_.erase(peer); }
  std::optional<uint64_t> next_ended() override {
    for (const auto& [peer, process] : watched_)
      for (const uint32_t ended : ended_)
        if (process == ended) {
          const uint64_t found = peer;
          watched_.erase(found);
          return found;
        }
    return std::nullopt;
  }

 private:
  uint32_t process_;
  const std::vector<uint32_t>& ended_;
  std::map<uint64_t, uint32_t> watched_;
};

class SmallNet {
 public:
  struct Node {
    int host = 0;
    uint64_t place = 0;
    bool is_paused = false;
    std::unique_ptr<Engine> engine;
    std::vector<Domain*> rails;  // the engine's
  };

  explicit SmallNet(sim::NetworkOptions network_options = software())
      : network_(simulation_, 5, network_options) {
    options.heartbeat = {1'000'000, 4'000'000};
    options.random = [this] { return random_.next(); };
  }
  ~SmallNet() {
    network_.end();
    for (const auto& node : nodes_) node->engine.reset();
  }

  static sim::NetworkOptions software() {
    sim::NetworkOptions options;
    options.removal_fences = false;
    options.lands_when_polled = true;
    options.stops_with_process = true;
    return options;
  }

  /// The options are those of all that follow.
  Node& add(uint64_t engine) {
    nodes_.push_back(std::make_unique<Node>());
    Node& node = *nodes_.back();
    node.host = network_.add_host([] {});
    node.place = nodes_.size();
    std::vector<std::unique_ptr<Domain>> rails;
    for (size_t rail = 0; rail < rail_count; ++rail) {
      const uint64_t place = node.place + rail * kPlacesOfARail;
      rails.push_back(network_.open_domain(
          node.host, place, rail_gbps.empty() ? std::nullopt : std::optional(rail_gbps[rail])));
      node.rails.push_back(rails.back().get());
    }
    EngineOptions its = options;
    its.engine = engine;
    its.processes =
        std::make_shared<TestProcesses>(static_cast<uint32_t>(nodes_.size()), ended_processes);
    node.engine = Engine::open(std::move(rails), its).value();
    return node;
  }
  /// A wire alone, for whoever makes up his own messages.
  std::unique_ptr<Domain> add_wire(uint64_t place) {
    return network_.open_domain(network_.add_host([] {}), place);
  }

  void pause(Node& node) {
    node.is_paused = true;
    network_.pause(node.host);
  }
  void resume(Node& node) {
    node.is_paused = false;
    network_.resume(node.host);
  }
  void cut(Node& node, size_t rail, sim::Break how) { network_.cut(*node.rails[rail], how); }
  void mend(Node& node, size_t rail) { network_.mend(*node.rails[rail]); }
  void kill(Node& node, sim::Break others_see) {
    network_.crash(node.host, others_see);
    node.engine.reset();
  }

  uint64_t now_ns() const { return simulation::to_ns(simulation_.now()); }

  /// Until `is_so`, or `limit_us` later.
  bool run(
      double limit_us, const std::function<bool()>& is_so = [] { return false; }) {
    const auto end = simulation_.now() + simulation::from_us(limit_us);
    while (!is_so()) {
      if (simulation_.now() >= end) return false;
      for (const auto& node : nodes_)
        if (node->engine != nullptr && !node->is_paused)
          while (node->engine->step(now_ns())) {
          }
      const auto next = simulation_.now() + simulation::from_us(5);
      while (simulation_.step(next)) {
      }
      if (simulation_.now() < next) simulation_.advance_clock(next);
    }
    return true;
  }

  /// The number of `to` for `from`, once both are connected.
  uint64_t connect(Node& from, Node& to) {
    const uint64_t peer =
        from.engine->connect(to.engine->address(), now_ns() + 100'000'000).value();
    run(10'000, [&] {
      return from.engine->peer_state(peer).value() == PeerState::kConnected &&
             to.engine->find_peer(from.engine->address().engine).has_value();
    });
    return peer;
  }
  uint64_t number_of(Node& whom, Node& who) {
    return who.engine->find_peer(whom.engine->address().engine).value_or(0);
  }

  EngineOptions options;
  size_t rail_count = 1;
  std::vector<double> rail_gbps;          // of each rail; empty: all have the network's speed
  std::vector<uint32_t> ended_processes;  // numbers of nodes, from 1

 private:
  static constexpr uint64_t kPlacesOfARail = 1000;

  sim::Random random_{11};
  simulation::Simulation simulation_{{}};
  sim::Network network_;
  std::vector<std::unique_ptr<Node>> nodes_;
};

}  // namespace braid::fabric::test
