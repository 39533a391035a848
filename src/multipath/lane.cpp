#include "multipath/lane.h"

#include "cuda/scoped_context.h"

namespace braid::multipath {
namespace {

// Streams of one program that copy to one GPU at the same moment. Engines use one to three (vLLM,
// LMCache, PyTorch); each lane costs a stream on every GPU.
constexpr int kLanes = 4;

}  // namespace

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
  cuda::ScopedContext scope(driver_);
  for (size_t path = 0; path <= relays_.size(); ++path) {
    Endpoint& endpoint = path == 0 ? target_ : *relays_[path - 1];
    scope.enter(endpoint.context());
    CUstream stream = nullptr;
    const Status status =
        driver_.check(driver_.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING,
                                                         endpoint.stream_priority()),
                      "creating a stream on GPU " + std::to_string(endpoint.gpu()));
    if (!status.ok()) return status;
    lane.streams.push_back(stream);
    CUevent event = nullptr;
    const Status created =
        driver_.check(driver_.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING),
                      "creating an event on GPU " + std::to_string(endpoint.gpu()));
    if (!created.ok()) return created;
    lane.ends.push_back(event);
  }
  scope.enter(target_.context());
  return driver_.check(driver_.cuEventCreate(&lane.start, CU_EVENT_DISABLE_TIMING),
                       "creating an event on GPU " + std::to_string(target_.gpu()));
}

LaneSet::~LaneSet() {
  cuda::ScopedContext scope(driver_);
  for (Lane& lane : lanes_) {
    for (size_t path = 0; path < lane.streams.size(); ++path) {
      Endpoint& endpoint = path == 0 ? target_ : *relays_[path - 1];
      if (endpoint.is_abandoned()) continue;
      scope.enter(endpoint.context());
      driver_.cuStreamDestroy(lane.streams[path]);
      if (path < lane.ends.size()) driver_.cuEventDestroy(lane.ends[path]);
    }
    if (lane.start == nullptr || target_.is_abandoned()) continue;
    scope.enter(target_.context());
    driver_.cuEventDestroy(lane.start);
  }
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
