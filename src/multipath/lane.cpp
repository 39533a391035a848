#include "multipath/lane.h"

#include <algorithm>

#include "cuda/scoped_context.h"
#include "cuda/sticky_error.h"

namespace braid::multipath {
StreamKey stream_key(CUstream stream) {
  static thread_local const char thread_identity = 0;
  return {stream, stream == CU_STREAM_PER_THREAD ? &thread_identity : nullptr};
}

Result<std::unique_ptr<LaneSet>> LaneSet::open(const cuda::Driver& driver, Endpoint& target,
                                               const std::vector<Endpoint*>& relays) {
  std::unique_ptr<LaneSet> set(new LaneSet(driver, target, relays));
  set->lanes_.resize(kLanes);
  for (Lane& lane : set->lanes_) {
    const Status status = set->create(lane);
    if (!status.ok()) return status;
  }
  return set;
}

Status LaneSet::create(Lane& lane) {
  cuda::ScopedContext scope(driver_, target_.context());
  const std::string where = " on GPU " + std::to_string(target_.gpu());
  CUstream direct = nullptr;
  Status status = driver_.check(scope.status(), "creating a stream" + where);
  if (status.ok())
    status = driver_.check(driver_.cuStreamCreateWithPriority(&direct, CU_STREAM_NON_BLOCKING,
                                                              target_.stream_priority()),
                           "creating a stream" + where);
  if (!status.ok()) return status;
  lane.streams.push_back(direct);
  status = driver_.check(driver_.cuEventCreate(&lane.start, CU_EVENT_DISABLE_TIMING),
                         "creating an event" + where);
  for (const Endpoint* relay : relays_) lane.streams.push_back(stream_of(*relay, lane));
  for (size_t path = 0; path < lane.streams.size() && status.ok(); ++path) {
    CUevent end = nullptr;
    CUresult made = scope.enter(path == 0 ? target_.context() : relays_[path - 1]->context());
    if (made == CUDA_SUCCESS) made = driver_.cuEventCreate(&end, CU_EVENT_DISABLE_TIMING);
    status = driver_.check(made, "creating an event for GPU " + std::to_string(target_.gpu()));
    if (status.ok()) lane.ends.push_back(end);
  }
  return status;
}

Status LaneSet::replace_relay(size_t place, Endpoint& relay) {
  cuda::ScopedContext scope(driver_, relay.context());
  Status status = driver_.check(scope.status(), "entering GPU " + std::to_string(relay.gpu()));
  if (!status.ok()) return status;
  relays_[place] = &relay;
  for (Lane& lane : lanes_) lane.ends[place + 1] = nullptr;  // gone with the context before
  for (Lane& lane : lanes_) {
    status = driver_.check(driver_.cuEventCreate(&lane.ends[place + 1], CU_EVENT_DISABLE_TIMING),
                           "creating an event for GPU " + std::to_string(target_.gpu()));
    if (!status.ok()) return status;
    lane.streams[place + 1] = stream_of(relay, lane);
  }
  return {};
}

LaneSet::~LaneSet() {
  cuda::ScopedContext scope(driver_);
  for (Lane& lane : lanes_) {
    for (size_t path = 0; path < lane.ends.size(); ++path) {
      const Endpoint& endpoint = path == 0 ? target_ : *relays_[path - 1];
      if (endpoint.is_abandoned() || lane.ends[path] == nullptr) continue;
      scope.enter(endpoint.context());
      driver_.cuEventDestroy(lane.ends[path]);
    }
    if (target_.is_abandoned()) continue;
    scope.enter(target_.context());
    if (lane.start != nullptr) driver_.cuEventDestroy(lane.start);
    if (!lane.streams.empty()) driver_.cuStreamDestroy(lane.streams[0]);
  }
}

bool LaneSet::has_failed() const {
  const cuda::ScopedContext scope(driver_, target_.context());
  return std::any_of(lanes_.begin(), lanes_.end(), [this](const Lane& lane) {
    return cuda::is_sticky(driver_.cuStreamQuery(lane.streams[0]));
  });
}

Lane* LaneSet::find(const StreamKey& user) {
  Lane* idle = nullptr;
  for (Lane& lane : lanes_) {
    if (lane.user == user) return &lane;
    if (idle == nullptr && lane.is_idle()) idle = &lane;
  }
  if (idle != nullptr) idle->user = user;
  return idle;
}

}  // namespace braid::multipath
