// The state of a scheduler, for the scheduler's own files alone.
#pragma once

#include <algorithm>

#include "transfer/scheduler.h"

namespace braid::transfer {

struct Scheduler::Rail {
  explicit Rail(const RailSpec& spec) : lane(spec.nominal_gbps) {}

  Lane lane;
  NicRecord record;
  std::vector<uint32_t> paths;  // that may be used
  uint64_t delivered_bytes = 0;
  uint64_t seen_bytes = 0;  // of those, at the last look
  bool is_full = false;     // a slice has waited since the last look
  bool is_judged = false;   // its pairs become suspect now
};

struct Scheduler::Path {
  explicit Path(const PathSpec& given)
      : spec(given), lane(given.nominal_gbps), base(given.latency_us * 1000) {}

  PathSpec spec;
  Lane lane;
  BaseLatency base;
  Health health;
  bool is_fencing = false;
  bool is_retired = false;
  std::deque<uint64_t> open;   // postings in order; ended and late ones are removed at the front
  uint32_t open_count = 0;     // that are not late
  std::vector<uint64_t> late;  // postings that are late, in any order
  uint64_t probe = 0;          // the posting of the probe that is out
  uint64_t lost_probe = 0;     // the latest that was counted as lost and may still be answered
  bool is_measuring = false;   // by that probe
  uint64_t measured_ns = 0;    // when such a probe ended
  bool is_probe_due = false;
  uint64_t no_room_until_ns = 0;
  uint64_t refused_since_ns = kNever;
  uint64_t spared_ns = 0;  // when its postings were last spared from being overdue
  uint64_t timer_ns = kNever;
  uint64_t delivered_bytes = 0;
  uint64_t delivered_slices = 0;
  uint64_t reissued_slices = 0;

  bool is_usable() const { return health.is_usable() && !is_fencing && !is_retired; }
};

struct Scheduler::Peer {
  std::vector<uint32_t> paths;
  std::vector<uint32_t> ways;      // sets
  std::vector<uint64_t> requests;  // slots of those that have not ended, in any order
};

/// A slice exists from its first posting until it is delivered and none of its postings is open.
struct Scheduler::Slice {
  Slice(uint64_t slot, const Span& bytes) : request(slot), span(bytes) {}

  uint64_t request;  // its slot
  Span span;
  uint32_t open_count = 0;  // postings
  uint32_t failures = 0;
  uint64_t overdue_ns = 0;              // when it was first overdue; 0: never
  std::optional<uint32_t> failed_path;  // the latest
  bool is_delivered = false;
  bool is_queued = false;  // to be posted again
};

struct Scheduler::Open {
  uint64_t slice = 0;  // 0: a probe
  uint32_t path = 0;
  uint64_t size_bytes = 0;
  uint64_t posted_ns = 0;
  double eta_ns = 0;
  size_t index = 0;  // in Request::open
  Urgency urgency = Urgency::kBulk;
  bool is_late = false;   // its slice was posted again on another path
  size_t late_index = 0;  // in Path::late
};

struct Scheduler::Request {
  Request(RequestSpec&& given, const SliceRules& rules, uint64_t now_ns)
      : slicer(given.size_bytes, given.alignment_bytes, rules),
        spec(std::move(given)),
        added_ns(now_ns) {}

  Slicer slicer;
  RequestSpec spec;
  uint64_t added_ns;
  uint32_t flow = 0;
  size_t index = 0;            // in Peer::requests
  std::deque<uint64_t> again;  // slices to be posted again; some may have been delivered since
  uint64_t again_bytes = 0;
  std::vector<uint64_t> open;  // postings
  uint64_t delivered_bytes = 0;
  uint32_t reissued = 0;
  bool is_queued = false;  // in its flow
  bool is_stopped = false;
  Outcome outcome = Outcome::kDone;

  uint64_t pending_bytes() const { return slicer.left_bytes() + again_bytes; }
  /// Nothing more is to be delivered; open postings may still land.
  bool has_outcome() const { return is_stopped || delivered_bytes == spec.size_bytes; }
};

struct Scheduler::WaySet {
  std::vector<Way> all;
  size_t spread = 0;  // ways of the best rank, which carry slices while nothing is broken
  uint64_t slice_bytes_max = kNever;
  uint64_t unreachable_ns = kNever;  // since when none is usable, though requests want one
  std::vector<uint32_t> flows = {};  // that have requests, in any order
};

/// Requests between the same places from the same source, in their order.
struct Scheduler::Flow {
  FlowKey key;
  std::deque<uint64_t> queue;  // slots of requests; some may have nothing left to post
  uint64_t backlog_bytes = 0;
  size_t requests = 0;  // requests that have not ended
  size_t place = 0;     // in WaySet::flows
  uint32_t ways() const { return std::get<1>(key); }
  Urgency urgency() const { return std::get<Urgency>(key); }
  Turns::Flow turn(uint32_t index) const { return {std::get<0>(key), ways(), index}; }
};

struct Scheduler::Timer {
  uint64_t when_ns;
  TimerOf of;
  uint64_t id;
  static bool is_later(const Timer& a, const Timer& b) {
    return std::tie(a.when_ns, a.of, a.id) > std::tie(b.when_ns, b.of, b.id);
  }
};

template <typename Change>
void Scheduler::change(uint32_t path, uint64_t now_ns, const Change& make) {
  Health& health = paths_[path].health;
  const PathState before = health.state();
  make(health);
  if (health.state() != before) state_changed(path, before, now_ns);
}

template <typename Self, typename AnyPath, typename Visit>
void Scheduler::for_each_lane(Self& self, AnyPath& path, const Visit& visit) {
  visit(path.lane);
  visit(self.rails_[path.spec.local_rail].lane);
  if (path.spec.remote_rail != kNoRail) visit(self.rails_[path.spec.remote_rail].lane);
}

}  // namespace braid::transfer
