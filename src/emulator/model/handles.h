// Opaque handles. A handle is a number that no other object of the process ever had. It is looked
// up in a table and never dereferenced, so a null, destroyed or invented handle is detected.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

namespace braid::emulator {

/// The number of handles of all kinds in this process.
inline uintptr_t handles_made = 0;

template <typename Handle, typename Object>
class HandleTable {
 public:
  /// Files the object under a new handle.
  Handle add(std::shared_ptr<Object> object) {
    // Looks like a heap address to programs that print it, but is not mapped.
    const uintptr_t value = (uintptr_t{0x1b} << 40) | (++handles_made << 4);
    objects_.emplace(value, std::move(object));
    return reinterpret_cast<Handle>(value);
  }
  /// Null when there is no such object.
  std::shared_ptr<Object> find(Handle handle) const {
    const auto found = objects_.find(reinterpret_cast<uintptr_t>(handle));
    return found == objects_.end() ? nullptr : found->second;
  }
  void remove(Handle handle) { objects_.erase(reinterpret_cast<uintptr_t>(handle)); }
  template <typename Condition>
  void remove_if(Condition condition) {
    std::erase_if(objects_, [&](const auto& entry) { return condition(*entry.second); });
  }
  const std::map<uintptr_t, std::shared_ptr<Object>>& all() const { return objects_; }

 private:
  std::map<uintptr_t, std::shared_ptr<Object>> objects_;  // by age, so walks are deterministic
};

}  // namespace braid::emulator
