#include "library/copy_list.h"

#include <algorithm>

namespace braid::library {
namespace {

uint64_t number(const void* address) { return reinterpret_cast<uint64_t>(address); }

std::string entry(size_t index) { return "entry " + std::to_string(index); }

bool leaves_address_space(uint64_t address, uint64_t size_bytes) {
  return size_bytes > UINT64_MAX - address;
}

// `offset_bytes`: what the entries before this one have.
uint64_t address_of(const Addresses& end, size_t index, uint64_t offset_bytes) {
  return end.each != nullptr ? number(end.each[index]) : number(end.first) + offset_bytes;
}

bool is_null(const Addresses& end) { return end.each == nullptr && end.first == nullptr; }

}  // namespace

Error list_copies(const Addresses& destinations, const Addresses& sources,
                  const size_t* sizes_bytes, size_t count, std::vector<Copy>& copies) {
  if (count > 0 && (is_null(destinations) || is_null(sources) || sizes_bytes == nullptr))
    return Error::argument("a list is null, but the count is " + std::to_string(count));
  copies.clear();
  copies.reserve(count);
  uint64_t offset_bytes = 0;
  for (size_t index = 0; index < count; ++index) {
    const uint64_t size_bytes = sizes_bytes[index];
    if (size_bytes == 0) continue;
    const uint64_t destination = address_of(destinations, index, offset_bytes);
    const uint64_t source = address_of(sources, index, offset_bytes);
    offset_bytes += size_bytes;
    if (destination == 0 || source == 0)
      return Error::argument(entry(index) + " has a null address");
    if (leaves_address_space(destination, size_bytes) || leaves_address_space(source, size_bytes))
      return Error::argument(entry(index) + " is of " + std::to_string(size_bytes) +
                             " bytes, which its addresses leave no room for");
    copies.push_back({destination, source, size_bytes});
  }
  return Error::none();
}

Error check_rows(const Rows& rows) {
  if (rows.row_bytes == 0 || rows.row_count == 0) return Error::none();
  if (rows.destination == 0 || rows.source == 0) return Error::argument("an address is null");
  const uint64_t pitch_bytes = std::max(rows.destination_pitch_bytes, rows.source_pitch_bytes);
  if (rows.row_count > 1 &&
      std::min(rows.destination_pitch_bytes, rows.source_pitch_bytes) < rows.row_bytes)
    return Error::argument("a pitch is smaller than the row of " + std::to_string(rows.row_bytes) +
                           " bytes");
  uint64_t size_bytes = 0;
  if (__builtin_mul_overflow(pitch_bytes, rows.row_count - 1, &size_bytes) ||
      __builtin_add_overflow(size_bytes, rows.row_bytes, &size_bytes) ||
      leaves_address_space(rows.destination, size_bytes) ||
      leaves_address_space(rows.source, size_bytes))
    return Error::argument(std::to_string(rows.row_count) +
                           " rows are more than their addresses leave room for");
  return Error::none();
}

}  // namespace braid::library
