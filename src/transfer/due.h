// What is due when: each key has at most one time. The cost of a look depends on what is due, not
// on how many keys there are. Not synchronised.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace braid::transfer {

template <typename Key>
class Due {
 public:
  /// Replaces the key's time.
  void set(const Key& key, uint64_t when_ns) {
    const auto [known, is_new] = when_.try_emplace(key, when_ns);
    if (!is_new) {
      if (known->second == when_ns) return;
      order_.erase({known->second, key});
      known->second = when_ns;
    }
    order_.insert({when_ns, key});
  }
  void erase(const Key& key) {
    const auto known = when_.find(key);
    if (known == when_.end()) return;
    order_.erase({known->second, key});
    when_.erase(known);
  }
  /// The key's time becomes this one, unless it has an earlier one.
  void set_if_earlier(const Key& key, uint64_t when_ns) {
    const auto known = when_.find(key);
    if (known == when_.end() || when_ns < known->second) set(key, when_ns);
  }
  /// The key with the earliest time, if that is before now.
  std::optional<Key> first(uint64_t now_ns) const {
    return next_ns() < now_ns ? std::optional(order_.begin()->second) : std::nullopt;
  }
  /// Takes that key.
  std::optional<Key> take(uint64_t now_ns) {
    const std::optional<Key> key = first(now_ns);
    if (key) erase(*key);
    return key;
  }
  uint64_t next_ns() const {
    return order_.empty() ? std::numeric_limits<uint64_t>::max() : order_.begin()->first;
  }
  size_t size() const { return when_.size(); }

 private:
  std::map<Key, uint64_t> when_;
  std::set<std::pair<uint64_t, Key>> order_;
};

}  // namespace braid::transfer
