// Opaque handles. A handle is a number that no other object of the process ever had. It is looked
// up in a table and never dereferenced, so a null, destroyed or invented handle is detected. Only
// streams are otherwise, as on hardware: the next one has the handle of the last that was destroyed
// (2xH100, driver 580.159.04, also where the work of that one was still held).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace braid::emulator {

/// The number of handles of all kinds in this process.
inline uintptr_t handles_made = 0;

enum class Reuse : bool { kNo, kYes };

template <typename Handle, typename Object, Reuse reuse = Reuse::kNo>
class HandleTable {
 public:
  /// Files the object under a new handle.
  Handle add(std::shared_ptr<Object> object) {
    // Looks like a heap address to programs that print it, but is not mapped.
    uintptr_t value = (uintptr_t{0x1b} << 40) | (++handles_made << 4);
    if (!removed_.empty()) {
      value = removed_.back();
      removed_.pop_back();
    }
    objects_.emplace(value, std::move(object));
    return reinterpret_cast<Handle>(value);
  }
  /// Null when there is no such object.
  std::shared_ptr<Object> find(Handle handle) const {
    const auto found = objects_.find(reinterpret_cast<uintptr_t>(handle));
    return found == objects_.end() ? nullptr : found->second;
  }
  void remove(Handle handle) {
    const auto value = reinterpret_cast<uintptr_t>(handle);
    if (objects_.erase(value) != 0 && reuse == Reuse::kYes) removed_.push_back(value);
  }
  template <typename Condition>
  void remove_if(Condition condition) {
    std::erase_if(objects_, [&](const auto& entry) { return condition(*entry.second); });
  }
  const std::map<uintptr_t, std::shared_ptr<Object>>& all() const { return objects_; }

 private:
  std::map<uintptr_t, std::shared_ptr<Object>> objects_;  // by age, so walks are deterministic
  std::vector<uintptr_t> removed_;                        // to be used again
};

}  // namespace braid::emulator
