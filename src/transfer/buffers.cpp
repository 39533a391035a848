#include "transfer/buffers.h"

#include <limits>
#include <utility>

namespace braid::transfer {

Result<uint64_t> Buffers::add(MutableBytes memory, Rights rights) {
  Buffer buffer;
  buffer.memory = memory;
  buffer.rights = rights;
  return add(std::move(buffer));
}

Result<uint64_t> Buffers::add(Buffer buffer) {
  buffer.id = next_id_;
  const MutableBytes memory = buffer.memory;
  const uint64_t address = buffer.address();
  if (memory.empty() || address == 0 ||
      memory.size() > std::numeric_limits<uint64_t>::max() - address)
    return Status::error("the memory is null, empty, or ends beyond the address space");
  const auto next = by_address_.lower_bound(address);
  const bool meets_next = next != by_address_.end() && next->first - address < memory.size();
  bool meets_previous = false;
  if (next != by_address_.begin()) {
    const Buffer& previous = std::prev(next)->second;
    meets_previous = address - previous.address() < previous.memory.size();
  }
  if (meets_next || meets_previous)
    return Status::error("the memory overlaps a buffer that is registered already",
                         "Unregister that one first");
  stages_ += buffer.is_stage;
  by_address_[address] = std::move(buffer);
  address_of_[next_id_] = address;
  return next_id_++;
}

void Buffers::remove(uint64_t id) {
  const auto found = address_of_.find(id);
  if (found == address_of_.end()) return;
  stages_ -= by_address_.at(found->second).is_stage;
  by_address_.erase(found->second);
  address_of_.erase(found);
}

void Buffers::set_reached(uint64_t id, Reached reached) {
  Buffer& buffer = by_address_.at(address_of_.at(id));
  buffer.rails = reached.rails;
  buffer.refusals = std::move(reached.refusals);
}

const Buffer* Buffers::find(uint64_t id) const {
  const auto found = address_of_.find(id);
  return found == address_of_.end() ? nullptr : &by_address_.at(found->second);
}

const Buffer* Buffers::containing(uint64_t address, uint64_t size_bytes) const {
  const auto next = by_address_.upper_bound(address);
  if (next == by_address_.begin()) return nullptr;
  const Buffer& buffer = std::prev(next)->second;
  const uint64_t offset_bytes = address - buffer.address();
  if (offset_bytes >= buffer.memory.size()) return nullptr;
  return size_bytes <= buffer.memory.size() - offset_bytes ? &buffer : nullptr;
}

std::vector<Buffer> Buffers::all() const {
  std::vector<Buffer> buffers;
  for (const auto& [address, buffer] : by_address_)
    if (!buffer.is_stage) buffers.push_back(buffer);
  return buffers;
}

Cause check(const Buffers& buffers, uint64_t address, uint64_t size_bytes, Rights right,
            const Buffer*& buffer) {
  buffer = buffers.containing(address, size_bytes);
  if (buffer == nullptr) return Cause::kOutside;
  return (buffer->rights & right) == right ? Cause::kNone : Cause::kNotAllowed;
}

}  // namespace braid::transfer
