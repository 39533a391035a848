// Waiters for changes of memory: streams that wait on values, kernels that poll. Device work
// reports its writes; the CPU's writes are found by looking. The world's lock covers it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>

namespace braid::emulator {

class Watches {
 public:
  /// Calls `look` when bytes of [address, address + size) may have changed; the watch ends when
  /// `look` returns true. `look_at_host_memory` also calls it for a watch of host memory. Several
  /// watches may share a `group` number: when one of them is satisfied, all end.
  void add(uint64_t group, uint64_t address, uint64_t size_bytes, bool host_memory,
           std::function<bool()> look);
  uint64_t new_group() { return ++groups_; }
  void drop(uint64_t group);

  void changed(uint64_t address, uint64_t size_bytes);
  void look_at_host_memory();
  bool any_on_host_memory() const { return on_host_ > 0; }
  /// True if `changed` of this range would call any `look`.
  bool any_in(uint64_t address, uint64_t size_bytes) const;

 private:
  struct Watch {
    uint64_t group;
    uint64_t size_bytes;
    bool host_memory;
    std::function<bool()> look;
  };
  using Map = std::multimap<uint64_t, Watch>;
  void ask(uint64_t group, const std::function<bool()>& look);

  Map watches_;  // by address; sizes are at most kWidest
  int on_host_ = 0;
  uint64_t groups_ = 0;
};

}  // namespace braid::emulator
