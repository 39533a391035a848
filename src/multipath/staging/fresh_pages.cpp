#include "multipath/staging/fresh_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "host/huge_pages.h"

namespace braid::multipath::staging {
namespace {

uintptr_t page_bytes() { return static_cast<uintptr_t>(sysconf(_SC_PAGESIZE)); }

uintptr_t round_down(uintptr_t address, uintptr_t unit) { return address / unit * unit; }
uintptr_t round_up(uintptr_t address, uintptr_t unit) {
  return round_down(address + unit - 1, unit);
}

// Every page of which the copy writes a byte.
PageRange pages_of(const void* memory, uint64_t size_bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  return {round_down(begin, page_bytes()), round_up(begin + size_bytes, page_bytes())};
}

int advise(const PageRange& pages, int advice) {
  return madvise(reinterpret_cast<void*>(pages.begin), pages.end - pages.begin, advice);
}

bool holds_a_huge_page(const PageRange& pages) {
  return round_up(pages.begin, kHugePageBytes) + kHugePageBytes <= pages.end;
}

bool is_missing(uintptr_t page) {
  unsigned char residence = 0;
  return mincore(reinterpret_cast<void*>(page), 1, &residence) == 0 && (residence & 1) == 0;
}

}  // namespace

void populate(const PageRange& pages) { (void)advise(pages, MADV_POPULATE_WRITE); }

FreshPages::FreshPages(void* memory, uint64_t size_bytes)
    : all_(pages_of(memory, size_bytes)), begin_(reinterpret_cast<uintptr_t>(memory)) {}

PageRange FreshPages::find(uint64_t offset, uint64_t size_bytes) {
  const uintptr_t begin = begin_ + offset;
  const PageRange pages{offset == 0 ? all_.begin : round_up(begin, kHugePageBytes),
                        std::min(round_up(begin + size_bytes, kHugePageBytes), all_.end)};
  // The last page: what has been touched of a buffer that grows is its beginning.
  if (pages.is_empty() || !is_missing(pages.end - page_bytes()) || !is_worthwhile()) return {};
  return pages;
}

// Asked when the first page is found missing, and answered once for the whole copy. Huge pages are
// asked for here, for every page of the destination: parts with other advice than what is around
// them count towards the process's limit on mappings, and destinations side by side are one part.
bool FreshPages::is_worthwhile() {
  if (worthwhile_ == State::kUnknown) {
    // Linux before 5.14 refuses even no pages at all; then threads make pages as they copy.
    const bool can_populate = advise({all_.begin, all_.begin}, MADV_POPULATE_WRITE) == 0;
    const bool is_yes = can_populate && holds_a_huge_page(all_);
    worthwhile_ = is_yes ? State::kYes : State::kNo;
    // Where pages are larger, so are huge pages: then several threads would meet in one.
    if (is_yes && page_bytes() == 4096) (void)advise(all_, MADV_HUGEPAGE);
  }
  return worthwhile_ == State::kYes;
}

}  // namespace braid::multipath::staging
