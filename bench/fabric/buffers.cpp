#include "bench/fabric/buffers.h"

#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <string>
#include <utility>

#include "base/try.h"
#include "host/huge_pages.h"

namespace braid::bench {
namespace {

constexpr uint64_t kGoldenRatio = 0x9e3779b97f4a7c15;  // spreads the bits of a number
constexpr uint64_t kNoByteIsZero = 0x0101010101010101;
constexpr unsigned kHugePages2M = 21u << MAP_HUGE_SHIFT;  // MFD_HUGE_2MB, which glibc leaves out

Result<SharedPages> make_small_pages(const char* name, uint64_t size_bytes) {
  return make_shared_pages(size_bytes, {name});
}

Result<SharedPages> make_huge_pages(const char* name, uint64_t size_bytes) {
  SharedPages made;
  made.file = File(memfd_create(name, MFD_CLOEXEC | MFD_HUGETLB | kHugePages2M));
  if (!made.file.is_open() || ftruncate(made.file.get(), static_cast<off_t>(size_bytes)) != 0)
    return Status::error("there is no memory for the buffers: " + std::string(strerror(errno)));
  auto pages = MappedPages::map_shared(made.file.get(), 0, size_bytes, true);
  if (!pages.ok())
    return Status::error(
        "the kernel has too few huge pages for the buffers",
        "sysctl vm.nr_hugepages=" + std::to_string(2 * size_bytes / kHugePageBytes));
  made.pages = std::move(pages).value();
  return made;
}

}  // namespace

uint64_t now_ns() {
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

Result<Buffers> Buffers::map(uint64_t size_bytes, bool are_pages_huge) {
  const auto make = are_pages_huge ? make_huge_pages : make_small_pages;
  BRAID_LET(source, make("braid-bench-source", size_bytes));
  BRAID_LET(target, make("braid-bench-target", size_bytes));
  auto* words = reinterpret_cast<uint64_t*>(source.pages.memory());
  for (uint64_t i = 0; i < size_bytes / sizeof(uint64_t); ++i)
    words[i] = i * kGoldenRatio | kNoByteIsZero;
  return Buffers(std::move(source), std::move(target), are_pages_huge);
}

Result<TargetMemory> Buffers::map_target_again() const {
  TargetMemory mapped;
  if (are_pages_huge_) {
    BRAID_LET(pages, MappedPages::map_shared(target_file(), 0, target().size(), true));
    mapped.huge = std::move(pages);
  } else {
    BRAID_LET(shared, fabric::local::SharedMemory::open(File(dup(target_file())), target().size()));
    mapped.shared = std::move(shared);
  }
  return mapped;
}

void Buffers::clear(const Load& load) const { std::memset(target().data(), 0, load.total_bytes()); }

// Backwards, since what is written last comes last.
bool Buffers::has_arrived(const Load& load) const {
  for (uint64_t i = load.count; i-- > 0;) {
    const uint64_t offset = load.place(i) * load.size_bytes;
    if (std::memcmp(source().data() + offset, target().data() + offset, load.size_bytes) != 0)
      return false;
  }
  return true;
}

std::optional<uint64_t> Buffers::arrived_ns(const Load& load, uint64_t deadline_ns) const {
  for (uint64_t at_ns = now_ns();; at_ns = now_ns()) {
    if (has_arrived(load)) return at_ns;
    if (at_ns > deadline_ns) return std::nullopt;
  }
}

}  // namespace braid::bench
