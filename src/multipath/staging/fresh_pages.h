// Memory that a program has mapped and never touched has no pages. The first write to each makes
// the kernel find one and clear it, which takes several times as long as the copy does. So a thread
// pool makes the pages of a copy to the host while the links still carry its bytes, and makes them
// whole huge pages where it can: they cost the kernel less for each byte.
//
// One thread makes one huge page: of several that write to it first, each would clear all of it.
#pragma once

#include <cstdint>

namespace braid::multipath::staging {

inline constexpr uint64_t kHugePageBytes = uint64_t{2} << 20;

/// From the start of one page to the end of another.
struct PageRange {
  uintptr_t begin = 0;
  uintptr_t end = 0;
  bool is_empty() const { return begin >= end; }
};

/// Makes the pages that are missing. An error is none of ours: whoever writes there meets it too,
/// and then as the program expects it.
void populate(const PageRange& pages);

/// Which pages of a copy's destination are to be made. Used by one thread.
class FreshPages {
 public:
  FreshPages(void* memory, uint64_t size_bytes);

  /// For the bytes at [offset, offset + size_bytes): the pages to make before these are written.
  /// They end where a huge page does, and begin where those for the bytes before end. Empty when
  /// the program has touched the memory, going by one page; then this costs one system call.
  PageRange find(uint64_t offset, uint64_t size_bytes);

 private:
  bool is_worthwhile();

  const PageRange all_;
  const uintptr_t begin_;
  enum class State : uint8_t { kUnknown, kNo, kYes } worthwhile_ = State::kUnknown;
};

}  // namespace braid::multipath::staging
