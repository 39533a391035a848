#include "transfer/backends/mapped.h"

#include <algorithm>
#include <limits>

namespace braid::transfer {
namespace {

constexpr uint64_t kLookNs = 1'000'000'000;

}  // namespace

void MappedBackend::post(uint32_t way, const Piece& piece) {
  tell(piece.id, move(find(way, piece.address), piece));
}

Cause MappedBackend::move(const MappedRange* range, const Piece& piece) const {
  const Rights right = piece.operation == Operation::kWrite ? kMayWrite : kMayRead;
  if (range == nullptr || !range->holds(piece.address, piece.local.size()) || !range->is_open())
    return Cause::kOutside;
  if ((range->memory().rights & right) != right) return Cause::kNotAllowed;
  copy(piece, range->at(piece.address));
  __sync_synchronize();  // a sequentially consistent fence; GCC refuses std's under
                         // -fsanitize=thread
  return range->is_open() ? Cause::kNone : Cause::kOutside;
}

const MappedRange* MappedBackend::find(uint32_t way, uint64_t address) const {
  const auto next = ranges_.upper_bound({way, address});
  if (next == ranges_.begin() || std::prev(next)->first.first != way) return nullptr;
  return &std::prev(next)->second;
}

void MappedBackend::add(uint32_t way, MappedMemory memory) {
  std::erase_if(ranges_, [](const auto& each) { return !each.second.is_open(); });
  for (MappedRange& range : memory.ranges)
    ranges_.try_emplace({way, range.memory().address}, std::move(range));
}

void MappedBackend::drop(uint32_t way) {
  std::erase_if(ranges_, [&](const auto& each) { return each.first.first == way; });
}

bool MappedBackend::has_some(uint32_t way) const {
  return std::any_of(ranges_.begin(), ranges_.end(), [&](const auto& each) {
    return each.first.first == way && each.second.is_open();
  });
}

bool MappedBackend::has(uint32_t way, uint64_t address) const {
  const MappedRange* range = find(way, address);
  return range != nullptr && range->holds(address, 1) && range->is_open();
}

void MappedBackend::look(uint64_t now_ns) {
  if (now_ns < next_look_ns()) return;
  looked_ns_ = now_ns;
  std::erase_if(ranges_, [](const auto& each) { return !each.second.is_open(); });
}

uint64_t MappedBackend::next_look_ns() const {
  return ranges_.empty() ? std::numeric_limits<uint64_t>::max() : looked_ns_ + kLookNs;
}

}  // namespace braid::transfer
