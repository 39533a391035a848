#include "stress/owners.h"

namespace braid::stress {

int Owners::record(int stream) {
  program_.event_gpus.push_back(program_.streams[stream].gpu);
  const int event = static_cast<int>(program_.event_gpus.size()) - 1;
  operations_->push_back({.step = Step::kRecord, .stream = stream, .event = event});
  return event;
}

void Owners::wait(int stream, int event) {
  operations_->push_back({.step = Step::kWait, .stream = stream, .event = event});
}

void Owners::acquire(int region, int stream) {
  Use& use = uses_[region];
  if (use.event >= 0)
    wait(stream, use.event);
  else if (use.stream >= 0 && use.stream != stream)
    wait(stream, record(use.stream));
  use = {stream, -1};
}

void Owners::settle(int region) {
  const Use use = uses_[region];
  settled(region);
  if (use.event >= 0) {
    operations_->push_back({.step = Step::kSyncEvent, .event = use.event});
  } else if (use.stream >= 0) {
    // To wait for a context spoils what other threads capture there.
    switch (random_.below(program_.threads == 1 ? 3 : 2)) {
      case 0: operations_->push_back({.step = Step::kSyncStream, .stream = use.stream}); break;
      case 1: {
        const int event = record(use.stream);
        operations_->push_back({.step = Step::kSyncEvent, .event = event});
        break;
      }
      default: operations_->push_back({.step = Step::kSyncContext, .stream = use.stream});
    }
  }
}

bool Owners::is_used_by(int region, int gpu) const {
  const Use& use = uses_[region];
  if (use.event >= 0) return program_.event_gpus[use.event] == gpu;
  return use.stream < 0 || program_.streams[use.stream].gpu == gpu;
}

void Owners::leave(const std::vector<int>& regions, int stream) {
  for (const int region : regions) {
    Use& use = uses_[region];
    if (use.stream < 0 || (stream >= 0 && use.stream != stream)) continue;
    use = {-1, record(use.stream)};
  }
}

}  // namespace braid::stress
