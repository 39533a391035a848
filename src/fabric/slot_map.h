// Things by a number that is never used twice: the number of a thing that is gone finds nothing. A
// thing keeps its address while it lives. Not synchronised.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace braid::fabric {

template <typename T>
class SlotMap {
 public:
  /// Numbers are never 0, and their highest bit is 0.
  uint64_t add(T&& thing) {
    if (free_.empty()) grow();
    const uint32_t index = free_.back();
    free_.pop_back();
    Slot& slot = at(index);
    slot.generation = (slot.generation + 1) & 0x7fffffff;
    if (slot.generation == 0) slot.generation = 1;
    slot.thing.emplace(std::move(thing));
    ++size_;
    return uint64_t{slot.generation} << 32 | index;
  }

  T* find(uint64_t id) {
    const uint64_t index = id & 0xffffffff;
    if (index / kInChunk >= chunks_.size()) return nullptr;
    Slot& slot = at(index);
    return slot.thing && slot.generation == id >> 32 ? &*slot.thing : nullptr;
  }
  const T* find(uint64_t id) const { return const_cast<SlotMap*>(this)->find(id); }

  void erase(uint64_t id) {
    if (find(id) == nullptr) return;
    at(id & 0xffffffff).thing.reset();
    free_.push_back(static_cast<uint32_t>(id));
    --size_;
  }

  size_t size() const { return size_; }

  /// `visit(id, thing)`; it may erase.
  template <typename Visit>
  void for_each(const Visit& visit) {
    for (size_t index = 0; index < chunks_.size() * kInChunk; ++index)
      if (Slot& slot = at(index); slot.thing)
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

  static constexpr size_t kInChunk = 32;

  Slot& at(size_t index) { return chunks_[index / kInChunk][index % kInChunk]; }
  void grow() {
    const size_t first = chunks_.size() * kInChunk;
    // Not make_unique: it would write zeros over slots that hold nothing yet.
    chunks_.push_back(std::make_unique_for_overwrite<Slot[]>(kInChunk));
    for (size_t i = kInChunk; i-- > 0;) free_.push_back(static_cast<uint32_t>(first + i));
  }

  std::vector<std::unique_ptr<Slot[]>> chunks_;  // kInChunk slots each
  std::vector<uint32_t> free_;                   // the latest freed is used next
  size_t size_ = 0;
};

}  // namespace braid::fabric
