// The decoder's KV cache and the storage of tails, in pages that requests take and give back. Free
// pages hold a pattern, which is compared when they are taken: a write that came after the pages
// were given back ends the program.
#pragma once

#include <optional>
#include <vector>

#include "device.h"

namespace kv_push {

class PagePool {
 public:
  static constexpr uint32_t kPages = 48;
  static constexpr uint32_t kTails = 8;

  struct Slot {
    std::vector<uint32_t> pages;
    uint32_t tail = 0;
  };

  PagePool(Fabric& fabric, Device& device);

  /// None: wait until others give back.
  std::optional<Slot> take(uint32_t page_count);
  /// Once nobody can write there any more.
  void give_back(const Slot& slot);
  /// As when they are taken, of all that are free now.
  void verify_free();
  /// Ends the program unless every byte is what prefill makes of this dispatch.
  void verify(const Slot& slot, uint64_t dispatch);

  Fabric::Region cache() const { return cache_; }
  Fabric::Region tails() const { return tails_; }

 private:
  template <typename Visit>  // visit(place, size_bytes)
  void for_each_part(const Slot& slot, const Visit& visit);

  void verify_is_free(const Slot& slot);

  Device& device_;
  std::byte* memory_;  // the cache, then the tails
  Fabric::Region cache_;
  Fabric::Region tails_;
  std::vector<uint32_t> free_pages_;  // the last given back is taken first
  std::vector<uint32_t> free_tails_;
};

}  // namespace kv_push
