// Which way a slice takes, and whether it takes one now: pure functions on a snapshot of its ways.
//
// The rule: a way's eta is its base latency and the time that its rate needs for what is in flight
// and the slice. A slice takes the way with room that would deliver it soonest. It waits instead if
// a way without room would deliver it sooner, unless its queue is so long that others will still
// be busy when it arrives. A farther tier must be better by 25 %.
// Source: TENT, 3.3.1, which binds slices when they are submitted; here they are bound as late as a
// rail has room.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>

namespace braid::transfer {

enum class Urgency : uint8_t { kBulk, kUrgent };

/// One way of a slice, as it is now.
struct WayView {
  uint32_t path = 0;
  uint32_t rail = 0;  ///< the local one
  uint8_t tier = 0;   ///< 0: the nearest
  uint8_t rank = 0;   ///< of its transport; 0: the best
  bool is_usable = true;
  bool has_room = true;
  uint64_t room_ns = std::numeric_limits<uint64_t>::max();  ///< when it has, if that is known
  bool is_guest = false;                                    ///< a nearer tier is usable
  double eta_ns = 0;
  double rate = 0;  ///< GB/s
  double base_latency_ns = 0;
  uint64_t in_flight_bytes = 0;  ///< of the local rail
};

struct SliceView {
  uint64_t address = 0;  ///< of the request's first byte and the offset
  uint64_t size_bytes = 0;
  uint32_t source = 0;  ///< who has submitted it: a thread, a batch
  Urgency urgency = Urgency::kBulk;
  /// What waits with it and would go first or beside it.
  uint64_t backlog_bytes = 0;
};

inline constexpr double kFartherTier = 1.25;
/// Etas that differ less are taken for equal: rates are measured.
inline constexpr double kNoise = 1.1;

/// When a slice would be there if it goes a way in the queue of its kind, over all usable ways.
double horizon_ns(const SliceView& slice, std::span<const WayView> ways);

/// The index of the way that it takes now; nothing: it waits.
std::optional<size_t> spray(const SliceView& slice, std::span<const WayView> ways);

/// How slices find their ways. Others than braid's own serve for comparison.
class SprayPolicy {
 public:
  virtual ~SprayPolicy() = default;
  virtual std::optional<size_t> choose(const SliceView& slice, std::span<const WayView> ways) = 0;
  /// A slice of a path has been delivered.
  virtual void delivered(uint32_t path, uint64_t size_bytes, uint64_t took_ns) = 0;
};

class LateBinding final : public SprayPolicy {
 public:
  std::optional<size_t> choose(const SliceView& slice, std::span<const WayView> ways) override {
    return spray(slice, ways);
  }
  void delivered(uint32_t, uint64_t, uint64_t) override {}
};

}  // namespace braid::transfer
