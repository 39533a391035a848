// Who carries what next, as a pure policy: the paper's Task Manager and Path Selector (MMA sections
// 3.4.1 and 3.4.2). No driver, no clock, no threads, and no memory taken after construction.
//
// Every GPU has, for each direction, a queue of the jobs that it is the target of, and a PCIe link.
// A link that has room pulls: the direct path first, then as a relay for another GPU. A slow
// link has no room, and so pulls less by itself; what links usually take is kept only to make way
// for traffic that is not braid's.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "multipath/copy_engine/pace.h"
#include "multipath/copy_engine/pieces.h"
#include "multipath/path_counts.h"
#include "multipath/transfer.h"

namespace braid::multipath::copy_engine {

/// GPUs of one server that can take part.
inline constexpr int kMaxGpus = static_cast<int>(CopyEngineUse::kMostGpus);

/// Whom a link helps that has no direct work.
enum class RelayOrder : uint8_t {
  kLongestQueue,  ///< the target with most bytes waiting: most bytes stay direct in the end
  kFavourTarget,  ///< `favoured_gpu` first, then the longest queue
};

/// The choices of MMA section 3.4.2, with the paper's defaults.
struct Policy {
  RelayOrder relay_order = RelayOrder::kLongestQueue;
  int favoured_gpu = -1;
  /// A link relays only while it has no slices of its own GPU's, waiting or under way. Else it
  /// takes the oldest job's slices, whoever is their target.
  bool direct_first = true;
  /// A relay makes way for traffic that it can only notice as congestion: it is not braid's.
  bool yields = true;
  /// Not empty: no pulling; the shares of the direct path and of each relay in ascending order,
  /// e.g. {1, 2}. The paper's comparison (figure 11).
  std::vector<uint32_t> split;
  PaceCosts costs = pace_costs(default_costs());
  uint64_t slice_bytes = 0;  ///< of every slice; 0: as the costs say
};

struct Job {
  uint32_t id = 0;
  int target = 0;
  Direction direction = Direction::kHostToDevice;
  Priority priority = Priority::kBulk;
  uint32_t relays = 0;            ///< bit by GPU
  std::span<const Piece> pieces;  ///< not empty; stays where it is until the job is removed
};

/// A range of a job's bytes, given to the link of one GPU.
struct Slice {
  uint32_t job = 0;
  int target = 0;
  int via = 0;
  Direction direction = Direction::kHostToDevice;
  uint64_t offset = 0;  ///< of the first byte, among all bytes of the job
  uint64_t size_bytes = 0;
  uint32_t first_piece = 0;  ///< the piece that `offset` lies in
  double link_us = 0;        ///< expected, of its link
  int paths = 1;             ///< that its job may take
  uint32_t attempts = 0;     ///< times it has come back
  bool is_direct() const { return via == target; }
};

class Dispatch {
 public:
  /// `most_pieces`: of one slice, or less.
  Dispatch(Policy policy, size_t max_jobs, uint32_t most_pieces);

  const Pace& pace() const { return pace_; }  ///< constant

  /// Behind the jobs of its queue that are as urgent or more. At most `max_jobs` at once.
  void add(const Job& job);
  /// Nothing more of it is given out.
  void remove(uint32_t job);

  /// The next slice for this GPU's link, if the link has room and there is something for it.
  /// `can_relay`: there is a buffer for a slice that is not direct. It counts as under way until
  /// `link_done`.
  std::optional<Slice> pull(int gpu, Direction direction, uint64_t now_ns, bool can_relay);

  /// The slice has left its PCIe link, landed or lost.
  void link_done(const Slice& slice, uint64_t now_ns);
  /// After all that has happened by `now_ns` was told: links that drain too slowly rest.
  void settle(uint64_t now_ns);

  /// A slice that has not landed, to go over the direct path.
  void take_back(const Slice& slice);
  void drop_relay(int gpu) { dropped_ |= 1u << gpu; }
  void restore_relay(int gpu) { dropped_ &= ~(1u << gpu); }

  /// Bytes that no link has pulled yet, for all targets.
  uint64_t waiting_bytes(Direction direction) const;

 private:
  struct Waiting {
    Job job;
    uint64_t arrival = 0;
    uint64_t size_bytes = 0;
    uint64_t piece_bytes = 0;  // on average; 0: there is one
    uint64_t next_offset = 0;
    uint32_t next_piece = 0;
    std::array<uint64_t, kMaxGpus> quota{};  // static split: bytes that each GPU still carries
    uint64_t left_bytes() const { return size_bytes - next_offset; }
    bool goes_before(const Waiting& other) const {
      if (job.priority != other.job.priority) return job.priority > other.job.priority;
      return arrival < other.arrival;
    }
  };
  using Queue = std::vector<Waiting>;  // by priority, then arrival
  struct Link {
    int under_way = 0;
    int direct_under_way = 0;
    double expected_us = 0;      // of what is under way
    uint64_t head_since_ns = 0;  // the first of it is on the link
    uint64_t busy_since_ns = 0;  // for the sample
    uint64_t drained_bytes = 0;  // since then
    double drained_us = 0;       // what those were expected to take
    int paths = 1;               // of the latest of them
    uint64_t moved_bytes = 0;    // ever
    uint64_t moved_back = 0;     // by the other direction's link, when the sample began
    // What slices take, in what was expected; 0: not known. By the paths of their jobs, less one,
    // and apart for times when the other direction moves bytes too: congestion.h says why.
    std::array<std::array<double, 2>, kMaxGpus> usual_slowness{};
    bool was_congested = false;  // by the latest sample
    uint64_t rests_until_ns = 0;
    void begin_sample(uint64_t now_ns, const Link& back) {
      busy_since_ns = now_ns;
      drained_bytes = 0;
      drained_us = 0;
      moved_back = back.moved_bytes;
    }
    double left_us(uint64_t now_ns) const {
      return expected_us - static_cast<double>(now_ns - head_since_ns) * 1e-3;
    }
  };

  static size_t index(int gpu, Direction direction) {
    return static_cast<size_t>(gpu) * 2 + static_cast<size_t>(direction);
  }
  Link& other_way(size_t link) { return links_[link ^ 1]; }
  std::optional<Slice> pull_direct(int gpu, Direction direction, uint64_t now_ns);
  std::optional<Slice> pull_oldest(int gpu, Direction direction, uint64_t now_ns);
  std::optional<Slice> pull_relayed(int gpu, Direction direction, uint64_t now_ns);
  /// Slices of its own GPU's, waiting or under way.
  bool has_direct_work(int gpu, Direction direction) const;
  bool may_carry(const Waiting& waiting, int gpu) const;
  uint64_t bytes_for(const Queue& queue, int gpu) const;
  std::optional<Slice> cut(Queue& queue, Waiting& waiting, int gpu, uint64_t now_ns) const;
  Remainder rest_of(const Waiting& waiting, int gpu) const;
  void set_quotas(Waiting& waiting) const;

  Policy policy_;
  const Pace pace_;
  uint32_t most_pieces_;
  std::array<Queue, 2 * kMaxGpus> queues_;                 // by target
  std::array<std::vector<Slice>, 2 * kMaxGpus> returned_;  // by target; for the direct path only
  std::array<Link, 2 * kMaxGpus> links_;                   // by GPU
  uint64_t arrivals_ = 0;
  uint32_t dropped_ = 0;
};

}  // namespace braid::multipath::copy_engine
