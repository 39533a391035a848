// A decoder: dispatches requests to prefillers that have joined it, counts what they push, and has
// its pages back from those that it cancels or loses. One thread, which waits for the engine's
// descriptor: expect_imm_count of the paper, without callbacks.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "device.h"
#include "messages.h"
#include "page_pool.h"

namespace kv_push {

struct Request {
  uint32_t page_count = kRequestPagesMax;
  uint32_t step_us = 200;
  bool is_cancelled_midway = false;  // as if its user had gone
};

class Decoder {
 public:
  /// What became of dispatches.
  struct Tally {
    uint64_t decoded = 0;
    uint64_t cancelled = 0;    // and confirmed by the prefiller
    uint64_t lost = 0;         // with their prefiller; they were dispatched again
    uint64_t quarantined = 0;  // whose pages rest, as a late write may still land there
  };
  using AtMiddle = std::function<void(const std::string& prefiller)>;

  static constexpr std::chrono::seconds kPatience{600};
  /// `patience`: how long requests may wait for a prefiller that takes one.
  Decoder(Fabric& fabric, Device& device, std::chrono::seconds patience = kPatience);

  /// Until so many are here, neither more nor fewer. Ends the program after a minute.
  void wait_for_prefillers(size_t count);
  /// Until all are decoded or cancelled. Ends the program when its patience does. `at_middle` is
  /// called once for each dispatch, when a third of its pages have come.
  Tally decode(std::vector<Request> requests, const AtMiddle& at_middle = nullptr);
  /// Sends the prefillers away, and looks at all memory once more.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  struct Prefiller {
    std::string name;
    bool is_leaving = false;
    size_t dispatched = 0;
  };
  struct Dispatched {
    Request request;
    uint64_t number = 0;
    Fabric::Peer prefiller{};
    PagePool::Slot slot;
    std::vector<Fabric::Grant> grants;
    Fabric::Immediate immediate = 0;
    Clock::time_point deadline;
    bool is_cancelled = false;
    uint64_t expected() const {
      return immediates_of_request(static_cast<uint32_t>(slot.pages.size()));
    }
  };
  /// What is to be used again once its grants are fenced.
  struct Resting {
    PagePool::Slot slot;
    std::vector<Fabric::Grant> grants;
    uint64_t number = 0;  // of the dispatch
    Fabric::Immediate immediate = 0;
    uint64_t missing = 0;        // of its count
    Clock::time_point deadline;  // then the pages are quarantined
    bool is_quarantined = false;
  };
  using Dispatches = std::map<Fabric::Immediate, Dispatched>;

  void step();
  void handle(const Fabric::Event& event);
  void handle(Fabric::Peer from, const Bytes& bytes);
  void peer_lost(const Fabric::Lost& lost);
  void let_leave();

  void dispatch_waiting();
  Fabric::Peer pick_prefiller();
  bool dispatch(const Request& request, Fabric::Peer prefiller, PagePool::Slot slot);
  braid::Status tell(Dispatched& dispatched);
  void counted(Dispatches::iterator dispatched, uint64_t count);
  void cancel(Dispatched& dispatched);
  void confirmed(uint64_t number);
  void watch_deadlines();
  void watch_patience() const;

  enum class End { kDecoded, kCancelled, kLost };
  void end(Dispatches::iterator dispatched, End how);
  bool fence(const std::vector<Fabric::Grant>& grants);
  void look_at_resting();

  Fabric& fabric_;
  PagePool pool_;
  int events_;  // its descriptor
  const std::chrono::seconds patience_;
  Clock::time_point moved_;  // when a dispatch last began or ended
  std::map<Fabric::Peer, Prefiller> prefillers_;
  std::deque<Request> waiting_;
  Dispatches dispatches_;
  std::deque<Resting> resting_;
  uint64_t next_number_ = 1;
  AtMiddle at_middle_;
  Tally tally_;
};

}  // namespace kv_push
