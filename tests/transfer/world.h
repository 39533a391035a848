// One random run of a scheduler in virtual time: requests that move real bytes over paths that are
// slow, freeze, lose what is under way, fail and come back. All from one seed.
//
// What it holds the scheduler to: the bytes of a request that is done are those that a sequential
// copy would have left; nothing lands in a region after its request has ended, since its owner uses
// it again at once; each request ends once; whatever did not get done has a cause that the run has
// brought about; and once the faults are over, all ends, nothing is left open and every path is in
// use again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <string>
#include <vector>

#include "fabric/sim/random.h"
#include "transfer/scheduler.h"

namespace braid::transfer::test {

struct WorldCounts {
  uint64_t requests = 0;
  uint64_t done = 0;
  uint64_t postings = 0;
  uint64_t reissued = 0;
  uint64_t fences = 0;
  uint64_t probes = 0;
  uint64_t faults = 0;
};

class World {
 public:
  explicit World(uint64_t seed, bool is_traced = false);
  ~World();
  /// Throws std::runtime_error with what is wrong.
  WorldCounts run();

 private:
  struct Path;
  struct Region;
  struct Flight;
  struct Event;
  using FlightPointer = std::shared_ptr<Flight>;

  void build();
  void at(uint64_t when_ns, std::function<void()> action);
  void submit();
  void drive();
  void depart(const FlightPointer& flight);
  void arrive(const FlightPointer& flight);
  void land(const Flight& flight, uint64_t bytes);
  void end(const FlightPointer& flight, Ending how);
  void fail(const FlightPointer& flight);
  static void note_fault(Path& path, uint64_t until_ns);
  void break_something();
  void break_path(uint32_t path, int how, uint64_t until_ns);
  void mend(uint32_t path);
  void fence(uint32_t path);
  void lose_peer();
  void retire_some_path();
  void leave_peer();
  void forget_peer();
  void request_ended(const RequestEnded& ended);
  bool is_excused(const Region& region, const RequestEnded& ended) const;
  void check_rest();
  void trace(const std::string& what) const;
  [[noreturn]] void bug(const std::string& what) const;

  fabric::sim::Random random_;
  bool is_traced_;
  uint64_t now_ns_ = 0;
  uint64_t order_ = 0;
  uint64_t faults_end_ns_ = 0;
  uint64_t next_request_ = 1;
  uint64_t to_submit_ = 0;
  SchedulerOptions options_;
  std::unique_ptr<Scheduler> scheduler_;
  size_t rails_ = 0;
  std::vector<Path> paths_;
  std::vector<uint32_t> ways_;                       // sets, and
  std::vector<std::vector<uint32_t>> paths_of_way_;  // the paths of each
  std::vector<uint64_t> peer_of_way_;
  std::vector<Region> regions_;
  std::map<uint64_t, size_t> region_of_;  // by request, until it ends
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  uint64_t leaving_peer_ = 0;  // nothing is asked of it any more; 0: none
  bool has_left_ = false;      // and it is forgotten
  double failing_chance_ = 0;  // of each posting, alone
  uint64_t look_ns_ = 0;       // the earliest look at the scheduler that is planned
  WorldCounts counts_;
};

}  // namespace braid::transfer::test
