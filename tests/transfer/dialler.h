// The rails of an engine with many peers, as its transfers see them.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <vector>

#include "transfer/backends/fabric.h"
#include "transfer/rail_net.h"

namespace braid::transfer::test {

struct Dialler {
  explicit Dialler(RailNet& network, const Incarnation& incarnation = {5, 5})
      : net(network), who(incarnation), host(network.add_host()) {
    owned.jobs = std::make_unique<JobsAtOnce>();
    std::vector<std::unique_ptr<Rail>> rails;
    rails.push_back(Rail::open(net.open_domain(host), who, {}, nullptr, owned).value());
    fabric = std::make_unique<FabricBackend>(std::move(rails), who);
    net.also([this](uint64_t now_ns) {
      while (!is_paused && fabric->step(now_ns))
        for (const BackendEvent& event : fabric->take_events())
          if (const auto* gone = std::get_if<OwnerLost>(&event))
            lost.push_back(gone->way);
          else if (const auto* end = std::get_if<PieceEnd>(&event))
            ended[end->id] = end->cause;
      for (const Notified& each : fabric->take_notifications()) notified.push_back(each.name);
    });
  }
  ~Dialler() { net.stop(); }
  /// Further ways to owners of their own. The owners are added to the network first.
  void add_ways(const std::vector<RailNet::Side*>& owners) {
    for (const RailNet::Side* each : owners)
      ASSERT_TRUE(fabric->add_way(ways++, each->who, 0, each->rail->address()).ok());
  }
  /// Each way's dials fail at once.
  void add_refused_ways(const RailNet::Side& owner, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) {
      fabric::Address address = fabric::decode_address(owner.rail->address()).value();
      address.engine += i + 1;
      address.rails.front().provider = "another";
      ASSERT_TRUE(fabric->add_way(ways++, {2, i}, 0, fabric::encode(address)).ok());
    }
  }
  bool are_up(uint32_t first, uint32_t last) const {
    for (uint32_t way = first; way < last; ++way)
      if (!fabric->is_up(way)) return false;
    return true;
  }
  /// As a process that is stopped, and goes on.
  void pause() {
    is_paused = true;
    net.network().pause(host);
  }
  void resume() {
    is_paused = false;
    net.network().resume(host);
  }

  RailNet& net;
  const Incarnation who;
  const int host;
  bool is_paused = false;
  Owned owned;
  std::unique_ptr<FabricBackend> fabric;
  uint32_t ways = 0;
  std::vector<uint32_t> lost;         // ways to peers that were given up
  std::map<uint64_t, Cause> ended;    // of probes
  std::vector<std::string> notified;  // names
};

}  // namespace braid::transfer::test
