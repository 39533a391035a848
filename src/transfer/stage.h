// Memory that bytes pass through between a rail and a file: parts of equal size, aligned for direct
// file access past the page cache.
#pragma once

#include <sys/mman.h>

#include <memory>
#include <vector>

#include "transfer/codec.h"
#include "transfer/rail_messages.h"

namespace braid::transfer {

class Stage {
 public:
  /// Null: there is no memory.
  static std::shared_ptr<Stage> make(size_t parts) {
    const size_t size_bytes = parts * kStagedBytes;
    void* memory =
        mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    return std::shared_ptr<Stage>(new Stage(static_cast<std::byte*>(memory), size_bytes));
  }
  ~Stage() { munmap(bytes_.data(), bytes_.size()); }
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  MutableBytes bytes() const { return bytes_; }
  /// Where parts begin.
  static std::vector<uint64_t> offsets(uint64_t size_bytes) {
    std::vector<uint64_t> all;
    for (uint64_t at = 0; at + kStagedBytes <= size_bytes; at += kStagedBytes) all.push_back(at);
    return all;
  }

 private:
  Stage(std::byte* memory, size_t size_bytes) : bytes_(memory, size_bytes) {}

  MutableBytes bytes_;
};

}  // namespace braid::transfer
