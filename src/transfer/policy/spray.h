// Decides whether a slice takes a way now, and which one: pure functions on a snapshot of its ways.
//
// The rule: a way's eta is its base latency plus the time that its rate needs for the bytes in
// flight and the slice. A slice takes the way with room that would deliver it soonest. It waits
// instead if a way without room would deliver it sooner, unless the backlog is so long that the
// other ways will still be busy when it arrives. A farther tier must be better by 25 %, and each
// NUMA node that is farther still (tiers.h) by as much again. Source: TENT, 3.3.1, which binds
// slices when they are submitted; here they are bound as late as a rail has room.
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
  uint64_t room_ns = std::numeric_limits<uint64_t>::max();  ///< when it will have room, if known
  bool is_guest = false;                                    ///< a nearer tier is usable
  double eta_ns = 0;
  double rate = 0;  ///< GB/s
  double base_latency_ns = 0;
  uint64_t in_flight_bytes = 0;  ///< of the local rail
};

struct SliceView {
  uint64_t address = 0;  ///< the address of the request's first byte, plus the slice's offset
  uint64_t size_bytes = 0;
  uint32_t source = 0;  ///< its submitter: a thread or a batch
  Urgency urgency = Urgency::kBulk;
  /// Bytes that wait with the slice and would go before or beside it.
  uint64_t backlog_bytes = 0;
};

inline constexpr double kFartherTier = 1.25;
/// Etas that differ by less count as equal, since rates are measured.
inline constexpr double kNoise = 1.1;

/// How long all usable ways together need for the backlog and the bytes in flight.
double horizon_ns(const SliceView& slice, std::span<const WayView> ways);

/// The index of the way that the slice takes now; none: it waits.
std::optional<size_t> spray(const SliceView& slice, std::span<const WayView> ways);

/// A policy that chooses ways for slices. Policies other than braid's own serve for comparison.
class SprayPolicy {
 public:
  virtual ~SprayPolicy() = default;
  virtual std::optional<size_t> choose(const SliceView& slice, std::span<const WayView> ways) = 0;
  /// A path has delivered a slice.
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
