// One rank in the world of kv_model: what its streams have still to do, and what lies in its slots.
#pragma once

#include <array>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kv/marks.h"
#include "kv/slot_pool.h"

namespace braid::kv::test {

inline constexpr uint32_t kMostSlots = 7;  // of a side; an episode may have fewer

// What lies in a slot: whose content, and which writing of it.
struct Value {
  uint64_t name = 0;
  uint64_t version = 0;
  bool operator==(const Value&) const = default;
};

// One thing that a stream does to slots.
struct Touch {
  bool is_gpu;
  Slot slot;
  std::optional<Value> expects;   // a step that reads
  std::optional<Value> writes;    // a step that writes
  std::optional<Slot> copies_to;  // a copy: to this slot of the other side
};
struct Pending {
  Mark mark;
  Marks after;
  std::vector<Touch> touches;
};
enum Stream { kSteps, kDowns, kUps, kStreams };

inline Mark mark_of(int stream, const Marks& marks) {
  return stream == kSteps ? marks.step : stream == kDowns ? marks.down : marks.up;
}

class ModelRank {
 public:
  void enqueue(Stream stream, Pending pending) { streams_[stream].push_back(std::move(pending)); }

  /// Carries out the first thing of one stream; false: no stream can go on.
  bool advance(uint32_t choice) {
    for (uint32_t i = 0; i < kStreams; ++i) {
      const int stream = static_cast<int>((choice + i) % kStreams);
      if (streams_[stream].empty() || !done_.covers(streams_[stream].front().after)) continue;
      const Pending pending = std::move(streams_[stream].front());
      streams_[stream].pop_front();
      for (const Touch& touch : pending.touches) carry_out(touch);
      (stream == kSteps ? done_.step : stream == kDowns ? done_.down : done_.up) = pending.mark;
      return true;
    }
    return false;
  }
  bool is_idle() const {
    return streams_[kSteps].empty() && streams_[kDowns].empty() && streams_[kUps].empty();
  }

  /// Something under way touches the slot, and does not come before `after`.
  bool is_touched(bool is_gpu, Slot slot, const Marks& after) const {
    for (int stream = 0; stream < kStreams; ++stream)
      for (const Pending& pending : streams_[stream])
        for (const Touch& touch : pending.touches) {
          const bool is_it = (touch.is_gpu == is_gpu && touch.slot == slot) ||
                             (touch.is_gpu != is_gpu && touch.copies_to == slot);
          if (is_it && pending.mark > mark_of(stream, after)) return true;
        }
    return false;
  }

  void lose_gpu(const Marks& enqueued) {
    for (auto& stream : streams_) stream.clear();
    done_ = enqueued;
    on_gpu_.assign(kMostSlots, {});
  }

  const Marks& done() const { return done_; }
  const Value& on_gpu(Slot slot) const { return on_gpu_[slot]; }
  const Value& on_host(Slot slot) const { return on_host_[slot]; }
  /// Empty: every step has read what it was to read.
  const std::string& wrong() const { return wrong_; }

 private:
  void carry_out(const Touch& touch) {
    std::vector<Value>& here = touch.is_gpu ? on_gpu_ : on_host_;
    std::vector<Value>& there = touch.is_gpu ? on_host_ : on_gpu_;
    if (touch.expects && here[touch.slot] != *touch.expects)
      wrong_ = "a step reads what is not there";
    if (touch.writes) here[touch.slot] = *touch.writes;
    if (touch.copies_to) there[*touch.copies_to] = here[touch.slot];
  }

  std::array<std::deque<Pending>, kStreams> streams_;
  std::vector<Value> on_gpu_ = std::vector<Value>(kMostSlots);
  std::vector<Value> on_host_ = std::vector<Value>(kMostSlots);
  Marks done_;
  std::string wrong_;
};

}  // namespace braid::kv::test
