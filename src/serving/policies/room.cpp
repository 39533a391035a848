#include "serving/policies/room.h"

#include <algorithm>
#include <utility>

namespace braid::serving {

Room::Room(const View& view)
    : block_bytes_(view.block_bytes),
      left_blocks_(view.free_blocks),
      slots_(static_cast<int64_t>(view.max_running)) {
  for (const RequestView& request : view.requests) {
    if (request.state == RequestState::kRunning || request.state == RequestState::kLoading)
      --slots_;
    if (request.state == RequestState::kRunning) left_blocks_ -= request.growth_blocks;
  }
}

void Room::admit(const RequestView& request) {
  left_blocks_ -= request.blocks;
  --slots_;
  decision_.admit.push_back(request.id);
  decision_.load_bytes += request.load_blocks * block_bytes_;
}

void Room::preempt(const RequestView& victim) {
  left_blocks_ += victim.freed_blocks + victim.growth_blocks;
  ++slots_;
  freed_blocks_ += victim.freed_blocks;
  victims_.push_back(&victim);
  decision_.save_bytes += victim.save_blocks * block_bytes_;
}

void Room::spare(size_t count) {
  for (; victims_.size() > count; victims_.pop_back()) {
    const RequestView& victim = *victims_.back();
    left_blocks_ -= victim.freed_blocks + victim.growth_blocks;
    --slots_;
    freed_blocks_ -= victim.freed_blocks;
    decision_.save_bytes -= victim.save_blocks * block_bytes_;
  }
}

Decision Room::take() {
  for (const RequestView* victim : victims_) decision_.preempt.push_back(victim->id);
  return std::move(decision_);
}

Queue in_state(const View& view, RequestState state) {
  Queue queue;
  for (const RequestView& request : view.requests)
    if (request.state == state) queue.push_back(&request);
  return queue;
}

bool came_first(const RequestView* a, const RequestView* b) {
  return a->arrival_us != b->arrival_us ? a->arrival_us < b->arrival_us : a->id < b->id;
}

void cover_growth(Room& room, const Queue& victims) {
  for (const RequestView* victim : victims) {
    if (!room.is_short()) return;
    room.preempt(*victim);
  }
}

Decision only_cover_growth(Room& room, const Queue& victims) {
  cover_growth(room, victims);
  return room.take();
}

bool admit_in_order(Room& room, const Queue& queue) {
  for (const RequestView* request : queue) {
    if (!room.fits(*request)) return false;
    room.admit(*request);
  }
  return true;
}

}  // namespace braid::serving
