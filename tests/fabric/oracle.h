// Whose is each page of a process's memory? The oracle knows, and looks at every byte that lands.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "fabric/domain.h"

namespace braid::fabric::test {

/// What the code under test did wrong.
struct Bug : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline constexpr size_t kPageBytes = 128;
inline constexpr size_t kPages = 16;
inline constexpr uint32_t kNobodys = 0;  // no write has this number

/// The byte that a write puts at this place of its target, and what is there beforehand.
inline std::byte byte_of(uint32_t write, size_t place) {
  return static_cast<std::byte>((write * 0x9e3779b1u + place * 0x85ebca6bu) >> 24);
}
inline std::byte byte_before(uint32_t write, size_t place) { return ~byte_of(write, place); }
inline constexpr std::byte kFreeByte{0xf5};

class Memory {
 public:
  Memory() : bytes_(kPages * kPageBytes, kFreeByte), owners_(kPages, kNobodys) {}

  MutableBytes bytes() { return bytes_; }
  bool contains(const std::byte* place) const {
    return place >= bytes_.data() && place < bytes_.data() + bytes_.size();
  }

  /// The first of `count` free pages side by side; kPages: there are none.
  size_t find_free(size_t count) const {
    size_t found = 0;
    for (size_t page = 0; page < kPages; ++page) {
      found = owners_[page] == kNobodys ? found + 1 : 0;
      if (found == count) return page + 1 - count;
    }
    return kPages;
  }

  void give(size_t first, size_t count, uint32_t write) {
    for (size_t page = first; page < first + count; ++page) owners_[page] = write;
    for (size_t i = first * kPageBytes; i < (first + count) * kPageBytes; ++i)
      bytes_[i] = byte_before(write, i);
  }

  /// From now on nothing may land there.
  void take_back(size_t first, size_t count) {
    for (size_t page = first; page < first + count; ++page) owners_[page] = kNobodys;
    for (size_t i = first * kPageBytes; i < (first + count) * kPageBytes; ++i)
      bytes_[i] = kFreeByte;
  }

  void check_landing(const std::byte* place, size_t size_bytes) const {
    const size_t first = static_cast<size_t>(place - bytes_.data());
    for (size_t i = first; i < first + size_bytes; i += 1)
      if (owners_[i / kPageBytes] == kNobodys)
        throw Bug("a foreign byte: a write lands in page " + std::to_string(i / kPageBytes) +
                  ", which is free");
  }

  void check_free_pages() const {
    for (size_t i = 0; i < bytes_.size(); ++i)
      if (owners_[i / kPageBytes] == kNobodys && bytes_[i] != kFreeByte)
        throw Bug("a foreign byte is in page " + std::to_string(i / kPageBytes) +
                  ", which is free");
  }

 private:
  std::vector<std::byte> bytes_;
  std::vector<uint32_t> owners_;
};

}  // namespace braid::fabric::test
