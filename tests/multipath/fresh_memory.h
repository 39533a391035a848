// Memory that nobody has touched, and what is seen of its pages.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <stdexcept>
#include <vector>

namespace braid::test {

inline constexpr uint64_t kHugePage = 2 << 20;

/// Begins where a huge page may, and is zero throughout.
class FreshMemory {
 public:
  explicit FreshMemory(uint64_t size_bytes, int flags = MAP_PRIVATE | MAP_ANONYMOUS, int file = -1)
      : size_bytes_(size_bytes), reserved_bytes_(size_bytes + kHugePage) {
    reserved_ = mmap(nullptr, reserved_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (reserved_ == MAP_FAILED) throw std::runtime_error("mmap");
    const auto begin = (reinterpret_cast<uintptr_t>(reserved_) + kHugePage - 1) / kHugePage;
    data_ = reinterpret_cast<uint8_t*>(begin * kHugePage);
    if (mmap(data_, size_bytes_, PROT_READ | PROT_WRITE, flags | MAP_FIXED, file, 0) == MAP_FAILED)
      throw std::runtime_error("mmap");
  }
  ~FreshMemory() { munmap(reserved_, reserved_bytes_); }
  FreshMemory(const FreshMemory&) = delete;
  FreshMemory& operator=(const FreshMemory&) = delete;

  uint8_t* data() { return data_; }
  uint64_t size() const { return size_bytes_; }

  /// How many pages that begin in [begin, end) are there.
  uint64_t pages_there(uint64_t begin, uint64_t end) const {
    const auto page_bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    begin = (begin + page_bytes - 1) / page_bytes * page_bytes;
    if (begin >= end) return 0;
    std::vector<unsigned char> residence((end - begin + page_bytes - 1) / page_bytes);
    if (mincore(data_ + begin, end - begin, residence.data()) != 0)
      throw std::runtime_error("mincore");
    uint64_t count = 0;
    for (const unsigned char page : residence) count += page & 1;
    return count;
  }
  bool is_untouched(uint64_t begin, uint64_t end) const { return pages_there(begin, end) == 0; }
  bool is_there(uint64_t begin, uint64_t end) const {
    const auto page_bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    begin = begin / page_bytes * page_bytes;
    return pages_there(begin, end) == (end - begin + page_bytes - 1) / page_bytes;
  }

 private:
  const uint64_t size_bytes_, reserved_bytes_;
  void* reserved_ = nullptr;
  uint8_t* data_ = nullptr;
};

}  // namespace braid::test
