// Things by a small number, which is used again once its thing is gone. So it is for numbers that
// come back exactly once, and that no stranger can send. A thing keeps its address while it lives.
// Not synchronised.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

namespace braid::fabric {

template <typename T>
class Table {
 public:
  uint32_t add(T thing) {
    if (free_.empty()) {
      things_.emplace_back(std::move(thing));
      return static_cast<uint32_t>(things_.size() - 1);
    }
    const uint32_t index = free_.back();
    free_.pop_back();
    things_[index].emplace(std::move(thing));
    return index;
  }
  T* find(uint64_t index) {
    return index < things_.size() && things_[index] ? &*things_[index] : nullptr;
  }
  T& at(uint32_t index) { return *things_[index]; }
  const T& at(uint32_t index) const { return *things_[index]; }
  void erase(uint32_t index) {
    things_[index].reset();
    free_.push_back(index);
  }
  bool is_empty() const { return things_.size() == free_.size(); }
  /// `visit(index, thing)`; it may erase.
  template <typename Visit>
  void for_each(const Visit& visit) {
    for (uint32_t index = 0; index < things_.size(); ++index)
      if (things_[index]) visit(index, *things_[index]);
  }

 private:
  std::deque<std::optional<T>> things_;
  std::vector<uint32_t> free_;
};

}  // namespace braid::fabric
