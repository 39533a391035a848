// Who waits for memory to change: streams that wait on values, kernels that poll. Device work says
// what it wrote; what the CPU wrote is found by looking. The world's lock covers it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>

namespace braid::emulator {

class Watches {
 public:
  /// `look` is asked when bytes of [address, address + size) may have changed; true: no longer
  /// interested. A watch of host memory is also asked by `look_at_host_memory`. `group` is a number
  /// that several watches may share: when one of them is satisfied, all are dropped.
  void add(uint64_t group, uint64_t address, uint64_t size_bytes, bool host_memory,
           std::function<bool()> look);
  uint64_t new_group() { return ++groups_; }
  void drop(uint64_t group);

  void changed(uint64_t address, uint64_t size_bytes);
  void look_at_host_memory();
  bool any_on_host_memory() const { return on_host_ > 0; }
  /// True when `changed` of this range would ask anybody.
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
