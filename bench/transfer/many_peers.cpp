// What one look at the rails costs an engine that knows many peers, of which none has anything due.
//
//   transfer_many_peers [LOOKS] [--json FILE]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "fabric/sim/network.h"
#include "simulation/simulation.h"
#include "transfer/backends/fabric.h"

using namespace braid;
using namespace braid::transfer;

namespace {

/// Microseconds of one step and one look for the next deadline.
double step_us(uint64_t peers, uint64_t looks) {
  simulation::Simulation simulation{{}};
  fabric::sim::Network network(simulation, 1, {});
  const auto add_rail = [&](const Incarnation& who, Owned& owned) {
    owned.jobs = open_file_jobs();
    return Rail::open(network.open_domain(network.add_host([] {}), who[1]), who, {}, nullptr, owned)
        .value();
  };
  Owned ours, theirs;
  const auto far = add_rail({2, 2}, theirs);
  std::vector<std::unique_ptr<Rail>> rails;
  rails.push_back(add_rail({1, 1}, ours));
  FabricBackend fabric(std::move(rails), {1, 1});
  for (uint32_t peer = 0; peer < peers; ++peer) {
    const Incarnation who{9, peer};
    if (!fabric.add_way(peer, who, 0, far->address()).ok()) std::abort();
    fabric.owner_ended(who);  // it is known, and nothing of it is due
  }
  uint64_t sum = 0;
  const auto look = [&] {
    fabric.step(monotonic_ns());
    (void)fabric.take_events();
    sum ^= fabric.next_deadline_ns();
  };
  for (int i = 0; i < 100; ++i) look();  // what owner_ended has left
  double us = std::numeric_limits<double>::max();
  for (int turn = 0; turn < 5; ++turn) {  // the best turn: others may use the machine
    const uint64_t begun_ns = monotonic_ns();
    for (uint64_t i = 0; i < looks; ++i) look();
    us = std::min(us, static_cast<double>(monotonic_ns() - begun_ns) / 1e3);
  }
  network.end();
  return sum == 1 ? 0 : us / static_cast<double>(looks);
}

}  // namespace

int main(int count, char** arguments) {
  CLI::App app("What one look at the rails costs an engine that knows many peers.");
  uint64_t looks = 20'000;
  std::string file;
  app.add_option("looks", looks, "How often it looks, in each of five turns")
      ->capture_default_str();
  app.add_option("--json", file, "Also write the table to this file");
  CLI11_PARSE(app, count, arguments);
  nlohmann::json rows = nlohmann::json::array();
  std::printf("%8s %12s\n", "peers", "us a look");
  for (const uint64_t peers : {1, 10, 100, 1000}) {
    const double us = step_us(peers, looks);
    std::printf("%8llu %12.3f\n", static_cast<unsigned long long>(peers), us);
    rows.push_back({{"peers", peers}, {"look_us", us}});
  }
  if (file.empty()) return 0;
  std::ofstream out(file);
  out << nlohmann::json{{"looks", looks}, {"rows", rows}}.dump(2) << '\n';
  if (out.flush()) return 0;
  std::fprintf(stderr, "'%s' cannot be written: name another file\n", file.c_str());
  return 1;
}
