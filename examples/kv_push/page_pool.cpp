#include "page_pool.h"

namespace kv_push {
namespace {

constexpr uint64_t kCacheBytes = cache_bytes(PagePool::kPages);
constexpr uint64_t kTailsBytes = uint64_t{PagePool::kTails} * kTailBytes;

Bytes free_pattern(size_t size_bytes) { return Bytes(size_bytes, std::byte{0xf5}); }

}  // namespace

PagePool::PagePool(Fabric& fabric, Device& device)
    : device_(device),
      memory_(device.allocate(kCacheBytes + kTailsBytes)),
      cache_(must(fabric.add_region(memory_, kCacheBytes))),
      tails_(must(fabric.add_region(memory_ + kCacheBytes, kTailsBytes))) {
  device_.write(memory_, free_pattern(kCacheBytes + kTailsBytes));
  for (uint32_t i = kPages; i-- > 0;) free_pages_.push_back(i);
  for (uint32_t i = kTails; i-- > 0;) free_tails_.push_back(i);
}

template <typename Visit>
void PagePool::for_each_part(const Slot& slot, const Visit& visit) {
  for (uint32_t layer = 0; layer < kLayers; ++layer)
    for (const uint32_t page : slot.pages)
      visit(memory_ + page_offset(layer, page, kPages), size_t{kPageBytes});
  visit(memory_ + kCacheBytes + uint64_t{slot.tail} * kTailBytes, size_t{kTailBytes});
}

std::optional<PagePool::Slot> PagePool::take(uint32_t page_count) {
  if (free_pages_.size() < page_count || free_tails_.empty()) return std::nullopt;
  Slot slot;
  slot.pages.assign(free_pages_.end() - page_count, free_pages_.end());
  slot.tail = free_tails_.back();
  verify_is_free(slot);
  free_pages_.resize(free_pages_.size() - page_count);
  free_tails_.pop_back();
  return slot;
}

void PagePool::verify_is_free(const Slot& slot) {
  for_each_part(slot, [&](const std::byte* place, size_t size_bytes) {
    if (device_.read(place, size_bytes) != free_pattern(size_bytes))
      die("somebody has written into memory that was free");
  });
}

void PagePool::verify_free() {
  for (const uint32_t tail : free_tails_) verify_is_free({free_pages_, tail});
}

void PagePool::give_back(const Slot& slot) {
  for_each_part(slot, [&](std::byte* place, size_t size_bytes) {
    device_.write(place, free_pattern(size_bytes));
  });
  free_pages_.insert(free_pages_.end(), slot.pages.begin(), slot.pages.end());
  free_tails_.push_back(slot.tail);
}

void PagePool::verify(const Slot& slot, uint64_t dispatch) {
  size_t part = 0;
  for_each_part(slot, [&](const std::byte* place, size_t size_bytes) {
    const auto layer = static_cast<uint32_t>(part / slot.pages.size());
    const auto position = static_cast<uint32_t>(part % slot.pages.size());
    ++part;
    const bool is_tail = layer == kLayers;
    const Bytes wanted = is_tail ? tail_content(dispatch) : page_content(dispatch, layer, position);
    if (device_.read(place, size_bytes) != wanted)
      die(is_tail ? "the tail has wrong bytes"
                  : "page " + std::to_string(position) + " of layer " + std::to_string(layer) +
                        " has wrong bytes");
  });
}

}  // namespace kv_push
