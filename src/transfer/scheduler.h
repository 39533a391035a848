// The scheduler decides which path carries which bytes, and when. It is one state machine: the
// engine drives it with real transports, the simulator with simulated ones. It owns no thread, no
// clock and no bytes.
//
// The scheduler cuts requests into slices and posts slices on paths. A path is a pair of rails
// (NICs) to one peer, or one lane of another transport. Its driver calls:
//
//   add(request); while (posting = next(now)) post it; ended(posting, how, now); ...
//   while (probe = next_probe(now)) write arbitrary bytes; ended(probe, how, now);
//   while (event = next_event()) tell, fence, show;
//   and looks again at next_deadline_ns() at the latest.
//
// Its promises:
// - Each byte of a request that is done was delivered by a posting that ended well. Bytes that were
//   delivered twice count once.
// - A request ends once, and is final then: all its postings have ended, or their path was fenced
//   after them. An overdue slice is posted again on another path; the overdue posting stays open
//   meanwhile. If a request has only such late postings left, the scheduler asks for a fence of
//   their path (FenceWanted): the driver makes sure that nothing that was posted there can land any
//   more, and then calls `fenced`.
// - Memory is bounded by the number of requests and of slices in flight: a slice is cut when it is
//   posted.
//
// Numbers of rails, paths and way sets are given in rising order and never reused. Not
// synchronised. The cost of a slice grows with the number of its ways and, while all rails are
// full, with the number of way sets that have slices waiting. Source: TENT, 3.3 and 3.4; the rule
// is in policy/spray.h, the health states in policy/health.h.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "base/split_mix.h"
#include "fabric/slot_map.h"
#include "transfer/numbered.h"
#include "transfer/policy/health.h"
#include "transfer/policy/lane.h"
#include "transfer/policy/retry.h"
#include "transfer/policy/share.h"
#include "transfer/policy/slicer.h"
#include "transfer/policy/spray.h"
#include "transfer/policy/urgency.h"

namespace braid::transfer {

inline constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();
inline constexpr uint32_t kNoRail = std::numeric_limits<uint32_t>::max();

struct SchedulerOptions {
  SliceRules slices;
  RetryRules retry;
  /// A rail has room while it has fewer bytes in flight than it carries in window_us, or than
  /// window_slices_min slices have.
  double window_us = 200;
  uint32_t window_slices_min = 2;
  bool is_window_limited = true;  ///< false: slices are posted at once, as in early binding
  bool heals = true;              ///< false: an overdue slice stays on its path
  bool yields_to_urgent = true;   ///< false: urgent requests are like any other
  uint64_t probe_bytes = 4096;
  uint64_t seed = 1;  ///< of the jitter
};

/// A NIC of this host, or of a peer.
struct RailSpec {
  double nominal_gbps = 1;  ///< 10^9 bytes a second
};

struct PathSpec {
  uint64_t peer = 0;
  uint32_t local_rail = 0;
  uint32_t remote_rail = kNoRail;  ///< kNoRail: a lane that has no NIC at the far side
  double nominal_gbps = 1;
  double latency_us = 5;  ///< until one is measured
  /// A posting there always ends by itself, however late: it is never overdue.
  bool is_certain = false;
  /// A probe there takes as long as a small slice would.
  bool is_measured_by_probes = true;
  /// The largest slice of requests whose best way this is: posting one there blocks the thread.
  uint64_t slice_bytes_max = kNever;
};

/// A path that a request may take. A path of another transport than the best one stands by: it has
/// a higher rank, and is used only while no path of a lower rank is usable.
struct Way {
  uint32_t path = 0;
  uint8_t tier = 0;  ///< policy/tiers.h
  uint8_t rank = 0;
  bool is_closed = false;  ///< by Scheduler::set_closed
};

struct RequestSpec {
  uint64_t id = 0;  ///< the caller's; unique among the requests under way
  uint64_t peer = 0;
  uint64_t size_bytes = 0;
  Urgency urgency = Urgency::kBulk;
  uint32_t ways = 0;    ///< of `add_ways`
  uint32_t source = 0;  ///< its submitter, as a batch or a thread: sources of a peer take turns
  uint64_t address = 0;
  uint64_t alignment_bytes = 1;  ///< of where slices begin in it: 4,096 for O_DIRECT
  uint64_t deadline_ns = kNever;
  bool is_whole = false;         ///< it goes as one slice
  uint64_t slice_bytes_min = 0;  ///< raises the minimum of SliceRules
};

struct Posting {
  uint64_t id = 0;
  uint64_t request = 0;
  uint64_t offset = 0;  ///< within the request
  uint64_t size_bytes = 0;
  uint32_t path = 0;
};

/// A request to write `size_bytes` of arbitrary bytes.
struct Probe {
  uint64_t id = 0;
  uint32_t path = 0;
  uint64_t size_bytes = 0;
};

enum class Ending : uint8_t {
  kDone,
  kFailed,    ///< nothing more of it will land
  kLost,      ///< failed, but some bytes may still land: it stays open until its path is fenced
  kRefused,   ///< not posted: the path has no room now
  kRejected,  ///< refused by the owner, or for lack of a resource here: nothing of it will land. It
              ///< does not count against the path. The driver cancels the request first
};

enum class Outcome : uint8_t {
  kDone,
  kCancelled,
  kDeadline,
  kPeerLost,
  kUnreachable,  ///< no way was usable for RetryRules::unreachable_ns
  kFailed,       ///< a slice has failed too often, or was overdue for too long: RetryRules
};

struct RequestEnded {
  uint64_t request = 0;
  Outcome outcome = Outcome::kDone;
  uint64_t delivered_bytes = 0;  ///< not a prefix
  uint32_t reissued = 0;         ///< postings after the first one of each slice
};
/// Its request was stopped: the posting may end now, in any way. Until it does, its request has not
/// ended.
struct PostingUnwanted {
  uint64_t posting = 0;
};
/// A path is to be fenced. Nothing is posted there until `fenced` is called.
struct FenceWanted {
  uint32_t path = 0;
};
struct PathChanged {
  uint32_t path = 0;
  PathState from = PathState::kUp;
  PathState to = PathState::kUp;
};
using SchedulerEvent = std::variant<RequestEnded, PostingUnwanted, FenceWanted, PathChanged>;

/// A snapshot of a path, for display.
struct PathView {
  PathState state = PathState::kUp;
  bool is_fencing = false;
  double rate_gbps = 0;
  double base_latency_us = 0;
  uint64_t in_flight_bytes = 0;
  uint64_t delivered_bytes = 0;
  uint64_t delivered_slices = 0;
  uint64_t reissued_slices = 0;  ///< slices that were overdue or failed here
  RailShare share;               ///< of this host's rail
};

/// One way in the answer of `explain`.
struct WayExplained {
  Way way;
  PathState state = PathState::kUp;
  bool stands_by = false;  ///< it works, but a way of a lower rank works too
  bool has_room = false;
  double eta_us = 0;
  double rate_gbps = 0;
  bool is_chosen = false;
};

class Scheduler {
 public:
  explicit Scheduler(SchedulerOptions options = {}, std::unique_ptr<SprayPolicy> policy = nullptr);
  ~Scheduler();
  Scheduler(Scheduler&&) noexcept;
  Scheduler& operator=(Scheduler&&) noexcept;

  uint32_t add_rail(const RailSpec& spec);
  uint32_t add_path(const PathSpec& spec);
  /// Requests between the same places share one set of ways. All ways of a set lead to one peer.
  uint32_t add_ways(std::vector<Way> ways);
  /// Sets how much of a rail this process may use beside the host's other processes. Urgent slices
  /// do not wait for the pace.
  void set_share(uint32_t rail, const RailShare& share);
  RailShare share(uint32_t rail) const;
  /// The use of a rail of this host since the last call.
  RailUse take_use(uint32_t rail, uint64_t now_ns);
  /// The caller knows that the path is broken. The path is probed until it works.
  void path_failed(uint32_t path, uint64_t now_ns);
  /// The slices in flight there wait for something other than the path: their overdue clock starts
  /// anew.
  void spare(uint32_t path, uint64_t now_ns);
  /// The caller knows that the path may work again: if it is not in use, it is probed at once.
  void path_may_work(uint32_t path, uint64_t now_ns);
  /// The path is neither used nor probed any more. Its slices in flight end or are fenced.
  void retire_path(uint32_t path);
  /// Whether a path of the set may still be used, now or later.
  bool has_paths(uint32_t ways) const;
  /// Requests of this way set take a closed path only while they have no other one.
  void set_closed(uint32_t ways, uint32_t path, bool is_closed);
  /// Forgets a peer, its paths and its way sets. All its requests must have ended, and the caller
  /// must not name these numbers again.
  void remove_peer(uint64_t peer);
  /// Forgets a rail that no path uses any more.
  void remove_rail(uint32_t rail);

  void add(RequestSpec request, uint64_t now_ns);
  /// Posts no more of the request. It ends once nothing of it can land.
  void cancel(uint64_t request, uint64_t now_ns, Outcome why = Outcome::kCancelled);
  void peer_lost(uint64_t peer, uint64_t now_ns);

  std::optional<Posting> next(uint64_t now_ns);
  std::optional<Probe> next_probe(uint64_t now_ns);
  void ended(uint64_t posting, Ending how, uint64_t now_ns);
  /// Nothing that was posted there before can land any more.
  void fenced(uint32_t path, uint64_t now_ns);
  std::optional<SchedulerEvent> next_event();
  /// When the driver must look again if no posting ends before.
  uint64_t next_deadline_ns() const;

  /// It was cancelled, or has failed otherwise, and postings of it have not ended.
  bool is_stopped(uint64_t request) const;
  size_t request_count() const { return requests_.size(); }
  size_t open_postings() const { return postings_.size(); }
  size_t path_count() const { return paths_.size(); }
  size_t rail_count() const { return rails_.size(); }
  /// Bytes wait to be posted.
  bool has_backlog() const { return backlog_bytes_[0] + backlog_bytes_[1] > 0; }
  PathView view(uint32_t path, uint64_t now_ns) const;
  std::vector<WayExplained> explain(uint32_t ways, uint64_t size_bytes, Urgency urgency,
                                    uint64_t now_ns) const;

 private:
  // Defined in scheduler_state.h.
  struct Rail;
  struct Path;
  struct Peer;
  struct Slice;
  struct Open;
  struct Request;
  struct WaySet;
  struct Flow;
  struct Timer;
  enum class TimerOf : uint8_t { kPath, kWays, kRoom };
  using FlowKey = std::tuple<uint64_t, uint32_t, uint32_t, Urgency>;  // peer, ways, source, urgency

  // Flows and requests: scheduler_requests.cpp.
  SliceRules rules_of(uint32_t ways) const;
  uint32_t flow_of(const RequestSpec& spec);
  void enqueue(uint64_t slot, Request& request, bool at_front);
  void add_backlog(Request& request, uint64_t bytes);
  void take_backlog(Request& request, uint64_t bytes);
  void leave_turns_if_empty(uint32_t flow);
  uint64_t head_of(Flow& flow);
  void stop(uint64_t slot, Outcome why);
  void end_if_final(uint64_t slot);
  void leave_peer(const Request& request);
  void end_flow(uint32_t index);
  void fence_what_is_late(const Request& request);
  void deliver(uint64_t slice);
  void requeue(uint64_t slice);
  void count_failure(uint64_t slice);
  void request_is_due(uint64_t slot);
  void reachable_again(uint32_t path);
  void look_whether_reachable(uint32_t ways, uint64_t now_ns);

  // Postings: scheduler_postings.cpp.
  uint64_t post_from(uint32_t flow, uint64_t now_ns, std::optional<Posting>& posting);
  std::pair<uint64_t, Span> next_slice(Request& request, uint64_t now_ns);
  bool is_in_the_way(const Request& request, uint64_t now_ns) const;
  void find_ways(uint32_t ways, uint64_t size_bytes, Urgency urgency, uint64_t now_ns,
                 std::optional<uint32_t> avoided, std::vector<WayView>& views) const;
  WayView view_of(const Way& way, uint64_t size_bytes, uint64_t room_bytes, Urgency urgency,
                  uint64_t now_ns) const;
  size_t spread_of(uint32_t ways) const;
  static void leave_out_standby(std::vector<WayView>& views);
  void limit_guests(std::vector<WayView>& views) const;
  bool has_room(const Lane& lane, uint64_t size_bytes, Urgency urgency, uint64_t now_ns) const;
  void keep_clear(WayView& view, uint64_t now_ns) const;
  void keep_to_pace(WayView& view, uint64_t size_bytes, Urgency urgency, uint64_t now_ns) const;
  void note_full_rails();
  void look_when_there_is_room(uint64_t now_ns);
  uint64_t turn_bytes() const;
  Posting open(uint64_t slice, const WayView& way, uint64_t now_ns);
  void close(uint64_t posting);
  void leave_late(Path& path, const Open& open);
  void leave_front(Path& path);
  void measure(const Open& open, uint64_t now_ns);
  void posting_ended(uint64_t posting, Open& open, Ending how, uint64_t now_ns);
  void refused(uint32_t path, uint64_t now_ns);
  template <typename Self, typename AnyPath, typename Visit>
  static void for_each_lane(Self& self, AnyPath& path, const Visit& visit);
  void occupy(const Open& open);
  void vacate(const Open& open);

  // Health: scheduler_health.cpp.
  template <typename Change>
  void change(uint32_t path, uint64_t now_ns, const Change& make);
  void state_changed(uint32_t path, PathState from, uint64_t now_ns);
  void judge_nic(uint32_t rail, uint64_t now_ns);
  void leave_rails(uint32_t path);
  void want_fence(uint32_t path);
  bool is_wanted(const Path& path) const;
  uint64_t overdue_at(const Path& path) const;
  void path_is_due(uint32_t path, uint64_t now_ns);
  uint64_t patience_ns(const Open& open) const;
  void first_is_overdue(uint32_t path, uint64_t now_ns);
  void reissue_all(uint32_t path);
  void reissue(uint64_t posting);
  void stop_what_is_overdue_for_too_long(const Path& path, uint64_t now_ns);
  bool wants_probe(const Path& path, uint64_t now_ns) const;
  uint64_t overlooked_at(const Path& path) const;
  uint64_t probe_late_at(const Path& path) const;
  void begin_probe(uint32_t path, uint64_t now_ns);
  void forget_probe(Path& path);
  void forget_lost_probe(Path& path);
  void forget_probes(Path& path);
  void lose_probe(Path& path);
  void lost_probe_answered(uint32_t path, uint64_t now_ns);
  void probe_ended(uint64_t posting, const Open& open, bool ok, uint64_t now_ns);
  void set_path_timer(uint32_t path);
  void add_timer(uint64_t when_ns, TimerOf of, uint64_t id);
  void look(uint64_t now_ns);
  double jitter() { return random_.unit(); }

  SchedulerOptions options_;
  std::unique_ptr<SprayPolicy> policy_;
  Numbered<Rail> rails_;
  Numbered<Path> paths_;
  Numbered<WaySet> ways_;
  std::map<uint64_t, Peer> peers_;
  fabric::SlotMap<Request> requests_;
  fabric::SlotMap<Slice> slices_;
  fabric::SlotMap<Open> postings_;
  std::unordered_map<uint64_t, uint64_t> slot_of_;  // by the caller's number
  std::vector<Flow> flows_;
  std::map<FlowKey, uint32_t> flow_by_key_;
  std::vector<uint32_t> free_flows_;
  Turns turns_[2];                      // by urgency: flows with a backlog
  uint64_t backlog_bytes_[2] = {0, 0};  // by urgency
  UrgencyShare urgency_;
  std::deque<SchedulerEvent> events_;
  std::deque<uint32_t> probes_due_;                    // paths
  std::vector<Timer> timers_;                          // a heap, the earliest first
  std::set<std::pair<uint64_t, uint64_t>> deadlines_;  // of requests: when, and the slot
  std::vector<WayView> views_;                         // of one slice, kept between calls
  uint64_t turn_bytes_ = 0;
  uint32_t waiting_ways_ = 0;   // of the last flow that was asked and had to wait
  size_t waiting_flows_ = 0;    // in a row
  bool has_changed_ = true;     // since `next` had nothing
  uint64_t nothing_ns_ = 0;     // when that was
  uint64_t room_timer_ns_ = 0;  // the latest that was set
  SplitMix random_;
};

}  // namespace braid::transfer
