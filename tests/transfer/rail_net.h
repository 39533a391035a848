// Rails on a simulated network, with nothing above them: for tests of what peers may do to each
// other, with messages that no engine of ours would send.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "fabric/sim/network.h"
#include "simulation/simulation.h"
#include "transfer/exports_calls.h"
#include "transfer/rail.h"

namespace braid::transfer::test {

/// Files are read and written at once, when it is stepped, or all refused.
class JobsAtOnce final : public FileJobs {
 public:
  explicit JobsAtOnce(Cause refusal = Cause::kNone) : refusal_(refusal) {}

  void start(FileJob job) override { jobs_.push_back(std::move(job)); }
  bool take_back(uint64_t) override { return false; }
  bool step() override {
    const std::vector<FileJob> jobs = std::exchange(jobs_, {});
    for (const FileJob& job : jobs) {
      if (refusal_ != Cause::kNone) {
        job.ended(refusal_);
        continue;
      }
      const auto at = static_cast<off_t>(job.position);
      const int file = job.file->cached.get();
      const ssize_t moved = job.is_write ? pwrite(file, job.memory.data(), job.memory.size(), at)
                                         : pread(file, job.memory.data(), job.memory.size(), at);
      const bool is_whole = moved == static_cast<ssize_t>(job.memory.size());
      job.ended(moved < 0 ? Cause::kFileError : is_whole ? Cause::kNone : Cause::kOutside);
    }
    return !jobs.empty();
  }
  int descriptor() const override { return -1; }
  bool arm() override { return jobs_.empty(); }
  size_t under_way() const override { return jobs_.size(); }

 private:
  const Cause refusal_;
  std::vector<FileJob> jobs_;
};

class RailNet {
 public:
  /// A rail of a process.
  struct Side {
    Incarnation who{};
    int host = 0;
    bool is_paused = false;
    Owned owned;
    const fabric::Domain* domain = nullptr;  ///< of the rail
    std::unique_ptr<Rail> rail;
    std::vector<LinkUp> up;
    std::vector<LinkLost> lost;
    std::vector<RailMessage> messages;
    std::map<uint64_t, Cause> ended;  // by piece
  };

  /// `answers_writes`: the wire does (fabric's Traits). `breaks_connections`: writes to a peer
  /// whose link was closed fail; over shm they do not.
  explicit RailNet(bool answers_writes = false, bool breaks_connections = true)
      : network_(simulation_, 5, options(answers_writes, breaks_connections)) {
    simulation_.advance_clock(simulation::from_us(monotonic_ns() / 1e3));
  }
  ~RailNet() {
    stop();
    for (const auto& side : sides_) side->rail.reset();
  }

  /// Another rail of `whose`, or of a process of its own.
  Side& add(const Side* whose = nullptr) {
    sides_.push_back(std::make_unique<Side>());
    Side& side = *sides_.back();
    side.who = whose != nullptr ? whose->who : Incarnation{1, sides_.size()};
    side.host = add_host();
    side.owned.jobs = std::make_unique<JobsAtOnce>();
    auto domain = open_domain(side.host);
    side.domain = domain.get();
    side.rail = Rail::open(std::move(domain), side.who, {}, nullptr, side.owned).value();
    return side;
  }
  std::unique_ptr<fabric::Domain> open_domain(int host) {
    return network_.open_domain(host, ++places_);
  }
  int add_host() {
    return network_.add_host([] {});
  }
  /// A process that speaks fabric's protocol, as that engine, and says and takes no message by
  /// itself. Ends after `stop`.
  std::unique_ptr<fabric::Engine> add_stranger(uint64_t number = kStranger) {
    fabric::EngineOptions options;
    options.engine = number;
    std::vector<std::unique_ptr<fabric::Domain>> domains;
    domains.push_back(open_domain(add_host()));
    auto stranger = fabric::Engine::open(std::move(domains), options).value();
    also([engine = stranger.get()](uint64_t now_ns) {
      while (engine->step(now_ns)) {
      }
    });
    return stranger;
  }
  static constexpr uint64_t kStranger = 77;
  /// What `run` is to do beside the rails, at each time.
  void also(std::function<void(uint64_t now_ns)> step) { steps_.push_back(std::move(step)); }
  uint64_t add_buffer(Side& side, MutableBytes memory, Rights rights) {
    const uint64_t buffer = side.owned.buffers.add(memory, rights).value();
    EXPECT_TRUE(side.rail->add_buffer(*side.owned.buffers.find(buffer)).ok());
    return buffer;
  }
  void pause(Side& side) {
    side.is_paused = true;
    network_.pause(side.host);
  }
  void resume(Side& side) {
    side.is_paused = false;
    network_.resume(side.host);
  }
  /// Before engines that the test has opened end.
  void stop() {
    steps_.clear();
    network_.end();
  }
  fabric::sim::Network& network() { return network_; }
  uint64_t now_ns() const { return simulation::to_ns(simulation_.now()); }

  /// Its link, once both have one.
  uint64_t connect(Side& from, Side& to) {
    const size_t before = to.up.size();
    const uint64_t link =
        from.rail->dial(to.who, to.rail->address(), now_ns() + 100'000'000).value();
    EXPECT_TRUE(run(100'000, [&] { return from.rail->is_up(link) && to.up.size() == before + 1; }));
    return link;
  }

  /// Until `is_so`. False: it was not, for so long.
  bool run(
      double limit_us, const std::function<bool()>& is_so = [] { return false; }) {
    const auto end = simulation_.now() + simulation::from_us(limit_us);
    while (!is_so()) {
      if (simulation_.now() >= end) return false;
      for (const auto& side : sides_)
        if (!side->is_paused) step(*side);
      for (const auto& each : steps_) each(now_ns());
      const auto next = simulation_.now() + simulation::from_us(5);
      while (simulation_.step(next)) {
      }
      if (simulation_.now() < next) simulation_.advance_clock(next);
    }
    return true;
  }

 private:
  static fabric::sim::NetworkOptions options(bool answers_writes, bool breaks_connections) {
    fabric::sim::NetworkOptions options;
    options.answers_writes = answers_writes;
    options.breaks_connections = breaks_connections;
    options.lands_when_polled = true;
    options.stops_with_process = true;
    return options;
  }

  void step(Side& side) {
    settle(side.owned.exports);  // threads open files, in a time that is not simulated
    (void)side.owned.jobs->step();
    for (bool is_busy = true; is_busy;) {
      is_busy = side.rail->step(now_ns());
      for (const RailEvent& event : side.rail->take_events()) {
        if (const auto* up = std::get_if<LinkUp>(&event)) side.up.push_back(*up);
        if (const auto* lost = std::get_if<LinkLost>(&event)) side.lost.push_back(*lost);
        if (const auto* end = std::get_if<PieceEnd>(&event)) side.ended[end->id] = end->cause;
        if (const auto* message = std::get_if<LinkMessage>(&event))
          side.messages.push_back(message->message);
      }
    }
  }

  simulation::Simulation simulation_{{}};
  fabric::sim::Network network_;
  std::vector<std::unique_ptr<Side>> sides_;
  std::vector<std::function<void(uint64_t now_ns)>> steps_;
  uint64_t places_ = 0;
};

}  // namespace braid::transfer::test
