#include "bench/fabric/buffers.h"

#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <string>
#include <utility>

namespace braid::bench {
namespace {

constexpr uint64_t kHugePageBytes = 2 << 20;
constexpr uint64_t kGoldenRatio = 0x9e3779b97f4a7c15;  // spreads the bits of a number
constexpr uint64_t kNoByteIsZero = 0x0101010101010101;
constexpr unsigned kHugePages2M = 21u << MAP_HUGE_SHIFT;  // MFD_HUGE_2MB, which glibc leaves out

}  // namespace

uint64_t now_ns() {
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

Result<Buffers::Part> Buffers::map_part(const char* name, uint64_t size_bytes,
                                        bool are_pages_huge) {
  const unsigned huge = are_pages_huge ? MFD_HUGETLB | kHugePages2M : 0;
  const int file = memfd_create(name, MFD_CLOEXEC | huge);
  if (file < 0 || ftruncate(file, static_cast<off_t>(size_bytes)) != 0)
    return Status::error("there is no memory for the buffers: " + std::string(strerror(errno)));
  void* memory =
      mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, 0);
  if (memory != MAP_FAILED) return Part{file, {static_cast<std::byte*>(memory), size_bytes}};
  close(file);
  if (!are_pages_huge)
    return Status::error("there is no memory for the buffers: " + std::string(strerror(errno)));
  return Status::error("the kernel has too few huge pages for the buffers",
                       "sysctl vm.nr_hugepages=" + std::to_string(2 * size_bytes / kHugePageBytes));
}

Result<Buffers> Buffers::map(uint64_t size_bytes, bool are_pages_huge) {
  const auto source = map_part("braid-bench-source", size_bytes, are_pages_huge);
  if (!source.ok()) return source.status();
  const auto target = map_part("braid-bench-target", size_bytes, are_pages_huge);
  if (!target.ok()) return target.status();
  Buffers buffers(source.value(), target.value());
  auto* words = reinterpret_cast<uint64_t*>(buffers.source_.memory.data());
  for (uint64_t i = 0; i < size_bytes / sizeof(uint64_t); ++i)
    words[i] = i * kGoldenRatio | kNoByteIsZero;
  return buffers;
}

Buffers::Buffers(Buffers&& other) noexcept
    : source_(std::exchange(other.source_, {})), target_(std::exchange(other.target_, {})) {}

Buffers::~Buffers() {
  for (const Part& part : {source_, target_}) {
    if (part.file < 0) continue;
    munmap(part.memory.data(), part.memory.size());
    close(part.file);
  }
}

void Buffers::clear(const Load& load) const {
  std::memset(target_.memory.data(), 0, load.total_bytes());
}

// Backwards, since what is written last comes last.
bool Buffers::has_arrived(const Load& load) const {
  for (uint64_t i = load.count; i-- > 0;) {
    const uint64_t offset = load.place(i) * load.size_bytes;
    if (std::memcmp(source_.memory.data() + offset, target_.memory.data() + offset,
                    load.size_bytes) != 0)
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
