// The copies of one call, as addresses: what is wrong with them, before anything asks the driver.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "library/error.h"

namespace braid::library {

struct Copy {
  uint64_t destination = 0;
  uint64_t source = 0;
  uint64_t size_bytes = 0;
};

/// One copy of rows that lie apart; of a pitch is used what lies between the starts of two rows.
struct Rows {
  uint64_t destination = 0;
  uint64_t destination_pitch_bytes = 0;
  uint64_t source = 0;
  uint64_t source_pitch_bytes = 0;
  uint64_t row_bytes = 0;
  uint64_t row_count = 0;
};

/// Fails for null addresses, rows that overlap, and rows that leave the address space.
Error check_rows(const Rows& rows);

/// Where the entries of a batch begin at one end.
struct Addresses {
  const void* const* each = nullptr;  ///< null: they lie one after another
  const void* first = nullptr;        ///< then the first one begins here
};

/// Fills `copies` with the entries of a batch, less those of no bytes. Fails for null lists, and,
/// naming the entry, for null addresses and ranges that leave the address space.
Error list_copies(const Addresses& destinations, const Addresses& sources,
                  const size_t* sizes_bytes, size_t count, std::vector<Copy>& copies);

}  // namespace braid::library
