// Lanes: a stream of braid's on the target, and one on each relay, kept for one of the program's
// streams at a time. A transfer whose start the program's stream has not reached yet holds up its
// own lane only: another stream's transfers, which natively would be independent of it, stay so.
// The relays' streams are shared between targets; a transfer needs none of them to complete.
//
// Not thread-safe: the owning Target's lock guards it.
#pragma once

#include <memory>
#include <vector>

#include "base/status.h"
#include "cuda/driver.h"
#include "multipath/endpoint.h"
#include "multipath/ticket.h"

namespace braid::multipath {

/// Streams of one program that copy to one GPU at the same moment. Engines use one to three (vLLM,
/// LMCache, PyTorch). With the relays' streams these make eight in a context, as many as the driver
/// has hardware queues by default: streams that share a queue wait for each other.
inline constexpr int kLanes = 4;
inline constexpr int kStreamsPerContext = kLanes + Endpoint::kRelayStreams;

/// The program's stream, told apart as the driver does: the per-thread default stream is another
/// stream in every thread, under one handle.
struct StreamKey {
  CUstream stream = nullptr;
  const void* thread = nullptr;
  bool operator==(const StreamKey&) const = default;
};
StreamKey stream_key(CUstream stream);

struct Lane {
  StreamKey user;
  CUevent start = nullptr;        ///< where the program's stream was when the copy was submitted
  std::vector<CUstream> streams;  ///< by path: 0 on the target, then its relays in order
  std::vector<CUevent> ends;      ///< by path: for the gate of last resort (kernel_mover.cpp)
  Ticket* last = nullptr;         ///< of its latest transfer
  uint32_t last_generation = 0;
  uint64_t submitted_ns = 0;  ///< its latest transfer was
  uint64_t begun_ns = 0;      ///< it was first seen to have begun; 0: not yet

  /// No kernel of an earlier transfer is still waiting or running in this lane.
  bool is_idle() const {
    return last == nullptr || last->generation != last_generation || last->is_free();
  }
};

class LaneSet {
 public:
  /// Direct streams on `target`, beside the relay streams of `relays`. Allocates.
  static Result<std::unique_ptr<LaneSet>> open(const cuda::Driver& driver, Endpoint& target,
                                               const std::vector<Endpoint*>& relays);
  ~LaneSet();
  LaneSet(const LaneSet&) = delete;
  LaneSet& operator=(const LaneSet&) = delete;

  /// The lane that serves `user`, or an idle one bound to it from now on; null when all are taken.
  Lane* find(const StreamKey& user);

  /// The target's context has a sticky error. Asks the driver. Needs no lock: direct streams stay.
  bool has_failed() const;

  /// The relay at this place has a new context. Allocates.
  Status replace_relay(size_t place, Endpoint& relay);

  std::vector<Lane>& lanes() { return lanes_; }

 private:
  LaneSet(const cuda::Driver& driver, Endpoint& target, std::vector<Endpoint*> relays)
      : driver_(driver), target_(target), relays_(std::move(relays)) {}
  Status create(Lane& lane);
  /// Targets begin at different relay streams, so that one held stream hinders few others.
  CUstream stream_of(const Endpoint& relay, const Lane& lane) const {
    return relay.relay_stream(target_.gpu() + static_cast<int>(&lane - lanes_.data()));
  }

  const cuda::Driver& driver_;
  Endpoint& target_;
  std::vector<Endpoint*> relays_;
  std::vector<Lane> lanes_;
};

}  // namespace braid::multipath
