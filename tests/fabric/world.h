// One random run of the simulated network: processes with engines write into each other's memory,
// pause, crash and come back, while rails break and are mended. All from one seed.
//
// A write here has a number, a target (pages of the owner's memory), and a way to fail. The owner
// grants the pages, says so in a message, and waits for the count of immediates; the writer writes,
// and waits for its ticket. Each does with its memory what the engine allows, as soon as it does.
// What must hold:
//   - nothing lands in pages that are their owner's own again (oracle.h)
//   - once the count is reached, every byte is there; it is never exceeded
//   - once a ticket is done, every byte is there; its source is overwritten at once
//   - every write comes to an end on both sides: by its count, by its fence, by its ticket
//   - whatever fails had to (excuses.cpp): without faults, every write succeeds
//   - a write may be a part of a scatter, with one ticket for all; if it fails, it says which parts
//   - nobody comes out of a barrier before all members have come in, or its ticket names the others
//   - what was asked for is told once, and not before it has happened
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "fabric/endpoints.h"
#include "fabric/engine.h"
#include "fabric/faults.h"
#include "fabric/oracle.h"
#include "fabric/sim/network.h"
#include "fabric/sim/random.h"
#include "simulation/simulation.h"

namespace braid::fabric::test {

struct WorldCounts {
  uint64_t writes = 0;
  uint64_t arrived = 0;
  uint64_t fenced = 0;
  uint64_t quarantined = 0;
  uint64_t crashes = 0;
  uint64_t pauses = 0;
  uint64_t cuts = 0;
  uint64_t scatters = 0;
  uint64_t barriers = 0;
  uint64_t kills = 0;
  uint64_t retirements = 0;
  uint64_t detours = 0;  // writes that succeeded although a rail of theirs was down
};

class World {
 public:
  explicit World(uint64_t seed, bool is_traced = false);
  ~World();

  /// Throws Bug.
  WorldCounts run();

 private:
  struct Process;
  struct Job;
  struct Club;
  struct Asked;

  void say(const std::string& what);
  void plan_faults();
  void break_something();
  void break_rail(Process& process, sim::Break how, double lasts_us);
  void crash_and_restart(size_t host);
  void start_process(size_t host);
  std::unique_ptr<Domain> open_rail(Process& process, size_t rail);
  void meet(Process& from, Process& to);
  void wake(Process& process);
  void step(Process& process);
  void wake_at(Process& process, uint64_t at_ns);
  void leave_the_gone(Process& process);

  // owner.cpp: the side whose memory it is
  void begin_job(Process& owner);
  void choose_immediate(Job& job);
  void claim(Job& job);
  bool choose_pages(Job& job);
  void offer(Job& job);
  void look_after_own(Process& owner);
  void count_reached(Job& job);
  void give_up(Job& job);
  void watch_fence(Job& job);
  void check_whole(const Job& job, const char* who) const;
  void check_no_other_bytes(const Job& job) const;

  // writer.cpp: the side that writes
  void take_orders(Process& writer);
  void write(Process& writer, Job& job, const Descriptor& descriptor);
  void prepare_source(Process& writer, Job& job);
  void scatter(Process& writer);
  void begun(Process& writer, Job& job, uint64_t ticket);
  void look_after_tickets(Process& writer);
  void cancel(Process& writer, uint64_t ticket);
  bool is_part_done(const Process& writer, const Job& job, TicketState state) const;

  // told.cpp
  void watch_all(Process& process);
  uint64_t ask(Process& process, const Asked& asked);
  void ask_ticket(Process& process, uint64_t ticket, const Asked& asked);
  void ask_counts(Job& job);
  void take_events(Process& process);
  void peer_told(Process& process, const Happening& event);
  void ticket_told(Process& process, const Asked& asked, const Happening& event);
  void count_told(Process& process, const Asked& asked, const Happening& event);
  void check_told(Process& process);

  // club.cpp: processes that meet at barriers
  void found_club();
  void enter_later(Club& club, size_t index, double within_us);
  void enter(Club& club, size_t index);
  void barrier_ended(Club& club, size_t index);
  void check_clubs() const;

  // excuses.cpp
  Process& process_of(uint64_t engine) const;
  bool are_parted(const Process& a, const Process& b) const;
  bool may_be_swallowed(const Process& a, const Process& b) const;
  bool may_have_lost_a_message(const Process& a, const Process& b) const;
  bool may_have_missed_the_handshake(const Process& a, const Process& b) const;
  bool may_be_half_met(const Process& a, const Process& b) const;
  bool are_half_met(const Process& a, const Process& b) const;
  void note_losses(Process& process);
  bool may_lose(const Process& process, const Process& other, PeerFailure why) const;
  bool may_fail(const Job& job, Failure why) const;
  bool may_part_fail(const Job& job) const;
  bool may_be_refused(const Job& job) const;
  bool was_confirmed(const Job& job) const;
  bool may_be_missed(const Job& job) const;
  bool may_stay_quarantined(const Job& job) const;
  bool may_stay_open(const Job& job) const;
  bool may_be_missing(const Club& club, size_t index, size_t other) const;

  bool knows_of_killed_rail(const Process& writer, const Process& owner) const;
  void kill_a_rail();
  bool may_have_begun_to_beat_late(const Process& a, const Process& b) const;
  void retire_a_rail();

  // end.cpp
  void look_whether_over();
  bool is_settled() const;
  bool is_settled(const Process& process) const;
  bool is_killed(const Process& process, const Process& other, size_t rail) const;
  static bool knows(const Process& process, const Process& other);
  static bool has_succeeded(const Job& job);
  void check_end() const;
  void check_over(const Job& job) const;
  void check_connections() const;
  void check_rails() const;
  void check_route(const Process& process, const Process& other,
                   const RouteStatistics& route) const;
  void check_statistics(const EngineStatistics& statistics) const;

  double us(double from, double to) { return from + random_.unit() * (to - from); }
  uint64_t now_ns() const { return simulation::to_ns(simulation_.now()); }
  uint64_t after_ns(double us) const { return now_ns() + static_cast<uint64_t>(1000 * us); }

  uint64_t seed_;
  bool is_traced_;
  sim::Random random_;
  simulation::Simulation simulation_{{}};
  sim::NetworkOptions network_options_;
  EngineOptions engine_options_;
  std::unique_ptr<sim::Network> network_;
  size_t rails_ = 1;
  size_t endpoints_ = 1;  // of a rail, at most
  bool has_faults_ = false;
  bool cancels_ = false;   // writers cancel some tickets
  bool is_flaky_ = false;  // rails break often, and shortly
  // One rail of one process breaks for good, and nothing else: what begins once the others know
  // must succeed over other rails.
  bool kills_a_rail_ = false;
  size_t killed_rail_ = 0;
  std::map<std::tuple<size_t, uint64_t, size_t>, uint64_t> failures_before_;  // host, peer, rail
  Process* killed_ = nullptr;  // whose; null: not yet
  Faults faults_;
  uint64_t settled_since_ns_ = 0;
  bool is_over_ = false;
  std::vector<std::unique_ptr<Process>> processes_;  // all that have ever been
  std::vector<Process*> hosts_;                      // the one that lives on each
  std::vector<std::unique_ptr<Job>> jobs_;           // the number of a write - 1
  std::vector<std::unique_ptr<Club>> clubs_;
  WorldCounts counts_;
};

}  // namespace braid::fabric::test
