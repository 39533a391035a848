// The copy-engine mover's thread, one step at a time: poll what has landed and which transfers have
// been reached by their streams, give links that have room their next slices, and watch over those
// that are late. Only the scheduler's thread calls it, and it never waits for a GPU.
//
// The second hop of a relayed slice is issued when the CPU has seen the first one land, not by an
// event in advance. That costs a step (about 15 us) on slices of 80 us of which two or three are
// under way on the link, so the link does not notice; and it buys two things: no line ever waits
// for another, and a slice whose relay stalls has provably not been written to its destination, so
// it can still go over the direct path.
//
// A gate never stays closed. A relay that refuses a call, whose context fails, or that lets a slice
// lie for longer than the deadline is done without, and its slices go direct, except those whose
// last hop is under way: they may still be written, so they are waited for. If the direct path
// fails too, the target's context is ended with a sticky error before its gate opens.
#pragma once

#include <vector>

#include "cuda/driver.h"
#include "multipath/copy_engine/dispatch.h"
#include "multipath/copy_engine/launcher.h"
#include "multipath/copy_engine/task.h"

namespace braid::multipath::copy_engine {

class Scheduler {
 public:
  Scheduler(const cuda::Driver& driver, const Policy& policy, uint64_t deadline_ns);

  /// What there is to do after a step, and so when the next one is due.
  enum class Load {
    kNone,
    kStarts,   ///< streams have yet to reach their transfers
    kMoving,   ///< slices are under way
    kPosting,  ///< and more can be issued at once
  };

  /// How it cuts: constant, for any thread.
  const Pace& pace() const { return dispatch_.pace(); }

  /// The task's stream has been told to announce its start and to wait at its gate.
  void accept(Task& task);
  Load step();
  /// Transfers whose gates have been opened; the caller takes them out.
  std::vector<Task*>& finished() { return finished_; }

  /// Stops using the station. False while transfers need it, unless forced: then they are given up.
  bool release(Station& station, bool is_forced);

 private:
  /// A slice under way.
  struct Flight {
    Slice slice;
    Task* task = nullptr;
    Station* via = nullptr;
    int buffer = -1;
    Hop hop = Hop::kDirect;
    Line* line = nullptr;
    uint32_t mark = 0;
    bool was_refused = false;  ///< some of its copies were not enqueued
    uint64_t issued_ns = 0;    ///< this hop
    uint64_t look_ns = 0;      ///< when the driver is to be asked about it
    bool is_last_hop() const { return hop != Hop::kToBuffer; }
  };
  enum class Fate { kUnderWay, kGone };

  void poll_flights();
  Fate advance(Flight& flight);
  Fate lose(Flight& flight, bool is_dead);
  void land(const Flight& flight);
  void watch_late();
  Fate look_at(Flight& flight);
  void leave_link(const Flight& flight);
  void poll_starts();
  bool post();
  bool post_to(int gpu, Direction direction);
  void issue(Flight& flight);
  bool can_relay(int gpu, Direction direction) const;
  void prefer(const Task& task);
  void end_failed();
  void forget_flights_of(const Task& task);
  void finish(Task& task);
  bool needs(const Station& station) const;
  void give_up(Station& station);
  CUresult enter(CUcontext context);

  const cuda::Driver& driver_;
  const uint64_t deadline_ns_;
  CUcontext current_ = nullptr;  // of the thread, as far as is known
  Launcher launcher_;
  Dispatch dispatch_;
  uint64_t now_ns_ = 0;
  uint64_t next_check_ns_ = 0;  // of contexts whose streams have yet to reach a transfer
  std::vector<Task*> starting_;
  std::vector<Task*> running_;
  std::vector<Task*> finished_;
  std::vector<Flight> flights_;
  std::array<Task*, kMaxTasks> by_id_{};     // of running ones
  std::array<Station*, kMaxGpus> relays_{};  // by GPU
  size_t turn_ = 0;                          // in order_: who is served next
  uint64_t relays_wait_until_ns_ = 0;        // transfers to other targets are coming in
  std::vector<int> order_;                   // GPUs, in the order in which links are served
};

}  // namespace braid::multipath::copy_engine
