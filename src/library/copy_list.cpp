#include "library/copy_list.h"

#include <algorithm>

#include "base/try.h"

namespace braid::library {
namespace {

uint64_t number(const void* address) { return reinterpret_cast<uint64_t>(address); }

std::string entry(size_t index) { return "entry " + std::to_string(index); }

bool leaves_address_space(uint64_t address, uint64_t size_bytes) {
  return size_bytes > UINT64_MAX - address;
}

// `ends(index)` gives an entry's two addresses.
template <typename Ends>
Error list(const size_t* sizes_bytes, size_t count, const Ends& ends, std::vector<Copy>& copies) {
  copies.clear();
  copies.reserve(count);
  for (size_t index = 0; index < count; ++index) {
    const uint64_t size_bytes = sizes_bytes[index];
    if (size_bytes == 0) continue;
    const auto [destination, source] = ends(index);
    if (destination == 0 || source == 0)
      return Error::argument(entry(index) + " has a null address");
    if (leaves_address_space(destination, size_bytes) || leaves_address_space(source, size_bytes))
      return Error::argument(entry(index) + " is of " + std::to_string(size_bytes) +
                             " bytes, which its addresses leave no room for");
    copies.push_back({destination, source, size_bytes});
  }
  return Error::none();
}

Error check_lists(const void* first, const void* second, const void* third, size_t count) {
  if (count > 0 && (first == nullptr || second == nullptr || third == nullptr))
    return Error::argument("a list is null, but the count is " + std::to_string(count));
  return Error::none();
}

// Where the next piece begins in the contiguous range of a gather or scatter.
class Cursor {
 public:
  explicit Cursor(const void* start) : at_(number(start)) {}
  uint64_t pass(uint64_t size_bytes) {
    const uint64_t here = at_;
    at_ += size_bytes;
    return here;
  }

 private:
  uint64_t at_;
};

bool ascend(std::span<const Copy> copies) {
  return std::adjacent_find(copies.begin(), copies.end(), [](const Copy& one, const Copy& next) {
           return next.destination < one.destination + one.size_bytes;
         }) == copies.end();
}

}  // namespace

Error list_batch(void* const* destinations, const void* const* sources, const size_t* sizes_bytes,
                 size_t count, std::vector<Copy>& copies) {
  BRAID_TRY(check_lists(destinations, sources, sizes_bytes, count));
  const auto ends = [&](size_t index) {
    return std::pair(number(destinations[index]), number(sources[index]));
  };
  return list(sizes_bytes, count, ends, copies);
}

Error list_gather(void* destination, const void* const* sources, const size_t* sizes_bytes,
                  size_t count, std::vector<Copy>& copies) {
  BRAID_TRY(check_lists(destination, sources, sizes_bytes, count));
  Cursor cursor(destination);
  const auto ends = [&](size_t index) {
    return std::pair(cursor.pass(sizes_bytes[index]), number(sources[index]));
  };
  return list(sizes_bytes, count, ends, copies);
}

Error list_scatter(void* const* destinations, const void* source, const size_t* sizes_bytes,
                   size_t count, std::vector<Copy>& copies) {
  BRAID_TRY(check_lists(destinations, source, sizes_bytes, count));
  Cursor cursor(source);
  const auto ends = [&](size_t index) {
    return std::pair(number(destinations[index]), cursor.pass(sizes_bytes[index]));
  };
  return list(sizes_bytes, count, ends, copies);
}

Error check_overlap(std::span<const Copy> copies, std::vector<Copy>& sorted) {
  if (ascend(copies)) return Error::none();
  sorted.assign(copies.begin(), copies.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const Copy& one, const Copy& other) { return one.destination < other.destination; });
  return ascend(sorted)
             ? Error::none()
             : Error::argument("a byte is in two destinations of the batch, which have no order");
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

uint64_t total_bytes(std::span<const Copy> copies) {
  uint64_t total = 0;
  for (const Copy& copy : copies) total += copy.size_bytes;
  return total;
}

}  // namespace braid::library
