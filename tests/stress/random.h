// Numbers from a seed, the same on every machine and with every standard library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace braid::stress {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t next() {  // splitmix64
    uint64_t word = state_ += 0x9e3779b97f4a7c15;
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9;
    word = (word ^ (word >> 27)) * 0x94d049bb133111eb;
    return word ^ (word >> 31);
  }
  /// 0 to limit - 1; 0 when `limit` is 0.
  uint64_t below(uint64_t limit) { return limit == 0 ? 0 : next() % limit; }
  uint64_t between(uint64_t least, uint64_t most) { return least + below(most - least + 1); }
  bool one_in(uint64_t count) { return below(count) == 0; }
  template <typename Item>
  const Item& of(const std::vector<Item>& items) {
    return items[below(items.size())];
  }

 private:
  uint64_t state_;
};

}  // namespace braid::stress
