// Memory that a program has mapped and never touched has no pages. At the first write to each page
// the kernel finds and clears one, which takes several times as long as the copy. So a thread pool
// makes the pages of a copy to the host while the links still carry its bytes. It makes whole huge
// pages where it can: they cost the kernel less per byte.
//
// One thread makes one huge page: if several threads wrote to it first, each would clear all of it.
#pragma once

#include <cstdint>

namespace braid::multipath::staging {

/// From the start of one page to the end of another.
struct PageRange {
  uintptr_t begin = 0;
  uintptr_t end = 0;
  bool is_empty() const { return begin >= end; }
};

/// Makes the missing pages. Ignores errors: the later write meets them too, and reports them as the
/// program expects.
void populate(const PageRange& pages);

/// Finds the pages of a copy's destination that are to be made. Used by one thread.
class FreshPages {
 public:
  FreshPages(void* memory, uint64_t size_bytes);

  /// The pages to make before the bytes at [offset, offset + size_bytes) are written. They end at
  /// the end of a huge page, and begin where the pages of the bytes before end. Empty if the
  /// program has touched the memory, judged by one page; then this costs one system call.
  PageRange find(uint64_t offset, uint64_t size_bytes);

 private:
  bool is_worthwhile();

  const PageRange all_;
  const uintptr_t begin_;
  enum class State : uint8_t { kUnknown, kNo, kYes } worthwhile_ = State::kUnknown;
};

}  // namespace braid::multipath::staging
