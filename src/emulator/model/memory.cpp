#include "emulator/model/memory.h"

#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace braid::emulator {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kHugePage = 2u << 20;

}  // namespace

Memory::Memory(const topology::Server& server) {
  for (const topology::Gpu& gpu : server.gpus) arenas_.emplace_back(gpu.memory_bytes);
}

Allocation* Memory::find(uint64_t address) {
  auto after = allocations_.upper_bound(address);
  if (after == allocations_.begin()) return nullptr;
  Allocation& candidate = std::prev(after)->second;
  return candidate.holds(address, 1) ? &candidate : nullptr;
}

bool Memory::overlaps(uint64_t address, uint64_t size_bytes) const {
  const auto next = allocations_.lower_bound(address);
  if (next != allocations_.end() && next->first - address < size_bytes) return true;
  return next != allocations_.begin() && std::prev(next)->second.holds(address, 1);
}

Allocation* Memory::add(Allocation made) {
  made.buffer_id = ++added_;
  const uint64_t address = made.address;
  return &allocations_.insert_or_assign(address, std::move(made)).first->second;
}

Allocation* Memory::add_device(int gpu, uint64_t size_bytes, Allocation made) {
  const auto address = arenas_[gpu].allocate(size_bytes);
  if (!address) return nullptr;
  made.kind = Allocation::Kind::kDevice;
  made.address = *address;
  made.size_bytes = size_bytes;
  made.place = Place::gpu(gpu);
  made.bytes = arenas_[gpu].bytes(*address);
  return add(std::move(made));
}

Allocation* Memory::add_host(int numa_node, uint64_t size_bytes, Allocation made) {
  if (size_bytes > (uint64_t{1} << 46)) return nullptr;
  void* at = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return nullptr;
  if (size_bytes >= kHugePage) madvise(at, size_bytes, MADV_HUGEPAGE);
  made.kind = Allocation::Kind::kHostAllocated;
  made.address = reinterpret_cast<uint64_t>(at);
  made.size_bytes = size_bytes;
  made.place = Place::host(numa_node);
  made.bytes = static_cast<std::byte*>(at);
  return add(std::move(made));
}

Allocation* Memory::add_registered(int numa_node, void* address, uint64_t size_bytes,
                                   Allocation made) {
  made.kind = Allocation::Kind::kHostRegistered;
  made.address = reinterpret_cast<uint64_t>(address);
  made.size_bytes = size_bytes;
  made.place = Place::host(numa_node);
  made.bytes = static_cast<std::byte*>(address);
  return add(std::move(made));
}

void Memory::remove(Allocation* allocation) {
  if (allocation->kind == Allocation::Kind::kDevice)
    arenas_[allocation->place.number()].release(allocation->address, allocation->size_bytes);
  if (allocation->kind == Allocation::Kind::kHostAllocated)
    munmap(allocation->bytes, allocation->size_bytes);
  allocations_.erase(allocation->address);
}

void Memory::remove_all_of(uint64_t context) {
  std::vector<Allocation*> left;
  for (auto& [address, allocation] : allocations_)
    if (allocation.context == context) left.push_back(&allocation);
  for (Allocation* allocation : left) remove(allocation);
}

bool is_readable(const void* address, uint64_t size_bytes) {
  constexpr size_t kProbes = 512;
  std::array<iovec, kProbes> pages;
  std::array<char, kProbes> bytes;
  const uint64_t start = reinterpret_cast<uint64_t>(address);
  if (start == 0 || start + size_bytes < start) return false;
  uint64_t at = start;
  while (at < start + size_bytes) {
    size_t count = 0;
    for (; count < kProbes && at < start + size_bytes; ++count) {
      pages[count] = {reinterpret_cast<void*>(at), 1};
      at = (at / kPage + 1) * kPage;
    }
    iovec into{bytes.data(), count};
    const ssize_t read = process_vm_readv(getpid(), &into, 1, pages.data(), count, 0);
    if (read < 0 && errno != EFAULT) return true;  // the kernel does not let us ask
    if (read != static_cast<ssize_t>(count)) return false;
  }
  return true;
}

}  // namespace braid::emulator
