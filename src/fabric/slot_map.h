// Things by a number that is never used twice: whoever asks with the number of something that is
// gone finds nothing. Addresses of things stay the same while they live. Not synchronised.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

namespace braid::fabric {

template <typename T>
class SlotMap {
 public:
  /// Numbers are never 0, and their highest bit is 0.
  uint64_t add(T thing) {
    uint32_t index = static_cast<uint32_t>(slots_.size());
    if (free_.empty()) {
      slots_.emplace_back();
    } else {
      index = free_.back();
      free_.pop_back();
    }
    Slot& slot = slots_[index];
    slot.generation = (slot.generation + 1) & 0x7fffffff;
    if (slot.generation == 0) slot.generation = 1;
    slot.thing.emplace(std::move(thing));
    ++size_;
    return uint64_t{slot.generation} << 32 | index;
  }

  T* find(uint64_t id) {
    const uint64_t index = id & 0xffffffff;
    if (index >= slots_.size()) return nullptr;
    Slot& slot = slots_[index];
    return slot.thing && slot.generation == id >> 32 ? &*slot.thing : nullptr;
  }
  const T* find(uint64_t id) const { return const_cast<SlotMap*>(this)->find(id); }

  void erase(uint64_t id) {
    if (find(id) == nullptr) return;
    slots_[id & 0xffffffff].thing.reset();
    free_.push_back(static_cast<uint32_t>(id));
    --size_;
  }

  size_t size() const { return size_; }

  /// `visit(id, thing)`; it may erase.
  template <typename Visit>
  void for_each(const Visit& visit) {
    for (size_t index = 0; index < slots_.size(); ++index)
      if (Slot& slot = slots_[index]; slot.thing)
        visit(uint64_t{slot.generation} << 32 | index, *slot.thing);
  }
  template <typename Visit>
  void for_each(const Visit& visit) const {
    const_cast<SlotMap*>(this)->for_each(
        [&](uint64_t id, T& thing) { visit(id, std::as_const(thing)); });
  }

 private:
  struct Slot {
    uint32_t generation = 0;
    std::optional<T> thing;
  };

  std::deque<Slot> slots_;
  std::vector<uint32_t> free_;
  size_t size_ = 0;
};

}  // namespace braid::fabric
