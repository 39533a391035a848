// Things by numbers that rise from 0 and are never used twice. An erased thing leaves the size of a
// pointer. A thing keeps its address while it lives. Not synchronised.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace braid::transfer {

template <typename T>
class Numbered {
 public:
  uint32_t add(T&& thing) {
    things_.push_back(std::make_unique<T>(std::move(thing)));
    ++size_;
    return static_cast<uint32_t>(things_.size() - 1);
  }
  void erase(uint64_t number) {
    if (!contains(number)) return;
    things_[number] = nullptr;
    --size_;
  }
  bool contains(uint64_t number) const {
    return number < things_.size() && things_[number] != nullptr;
  }
  /// The number must be in use.
  T& operator[](uint64_t number) { return *things_[number]; }
  const T& operator[](uint64_t number) const { return *things_[number]; }
  size_t size() const { return size_; }

 private:
  std::vector<std::unique_ptr<T>> things_;
  size_t size_ = 0;
};

}  // namespace braid::transfer
