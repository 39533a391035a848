#include "emulator/model/virtual_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <iterator>
#include <string>
#include <utility>

namespace braid::emulator {
namespace {

std::byte* map_nothing(void* at, uint64_t size_bytes, int fixed) {
  void* mapped =
      mmap(at, size_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | fixed, -1, 0);
  return mapped == MAP_FAILED ? nullptr : static_cast<std::byte*>(mapped);
}

bool map_file(void* at, uint64_t size_bytes, int file) {
  return mmap(at, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) !=
         MAP_FAILED;
}

std::pair<dev_t, ino_t> identity_of(int file) {
  struct stat found {};
  return fstat(file, &found) == 0 ? std::pair{found.st_dev, found.st_ino}
                                  : std::pair{dev_t{}, ino_t{}};
}

// The name of the file tells other processes which GPU the memory is of.
constexpr const char* kPrivateName = "braid physical memory";
constexpr const char* kSharedName = "braid memory of GPU ";

std::string name_of(const CUmemAllocationProp& properties, Place place) {
  const bool is_shared = properties.requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE;
  return is_shared ? kSharedName + std::to_string(place.number()) : kPrivateName;
}

}  // namespace

CUmemAccess_flags granted_to(const Grants& grants, int device) {
  const auto found = grants.find(device);
  return found == grants.end() ? CU_MEM_ACCESS_FLAGS_PROT_NONE : found->second;
}

PhysicalMemory::PhysicalMemory(const CUmemAllocationProp& properties, Place place, Arena* arena,
                               uint64_t size, int file)
    : properties_(properties), place_(place), arena_(arena), size_(size), file_(file) {}

PhysicalPtr PhysicalMemory::create(const CUmemAllocationProp& properties, Place place, Arena* arena,
                                   uint64_t size_bytes) {
  if (arena != nullptr && !arena->charge(size_bytes)) return nullptr;
  const int file = memfd_create(name_of(properties, place).c_str(), MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(size_bytes)) != 0) {
    if (file >= 0) close(file);
    if (arena != nullptr) arena->refund(size_bytes);
    return nullptr;
  }
  return PhysicalPtr(  // owner: the pointer; make_shared cannot reach the constructor
      new PhysicalMemory(properties, place, arena, size_bytes, file));
}

PhysicalPtr PhysicalMemory::adopt(const CUmemAllocationProp& properties, Place place, int file) {
  struct stat found {};
  const int own = fcntl(file, F_DUPFD_CLOEXEC, 0);
  if (own < 0) return nullptr;
  if (fstat(own, &found) != 0 || found.st_size <= 0) {
    close(own);
    return nullptr;
  }
  return PhysicalPtr(  // owner: the pointer; make_shared cannot reach the constructor
      new PhysicalMemory(properties, place, nullptr, static_cast<uint64_t>(found.st_size), own));
}

std::optional<int> PhysicalMemory::gpu_of(int file) {
  char name[64] = {};
  const std::string link = "/proc/self/fd/" + std::to_string(file);
  const std::string start = std::string("/memfd:") + kSharedName;
  if (readlink(link.c_str(), name, sizeof name - 1) < 0 || !std::string(name).starts_with(start))
    return std::nullopt;
  return std::atoi(name + start.size());
}

PhysicalMemory::~PhysicalMemory() {
  close(file_);
  if (arena_ != nullptr) arena_->refund(size_);
}

int PhysicalMemory::device() const {
  return properties_.location.type == CU_MEM_LOCATION_TYPE_DEVICE ? properties_.location.id
                                                                  : CU_DEVICE_CPU;
}

CUmemGenericAllocationHandle PhysicalHandles::add_reference(const PhysicalPtr& memory) {
  if (memory->handle == 0) {
    memory->handle = ++added_;
    all_[memory->handle] = memory;
  }
  ++memory->references;
  referenced_[memory->handle] = memory;
  return memory->handle;
}

PhysicalPtr PhysicalHandles::find(CUmemGenericAllocationHandle handle) const {
  const auto found = referenced_.find(handle);
  return found == referenced_.end() ? nullptr : found->second;
}

void PhysicalHandles::release(CUmemGenericAllocationHandle handle) {
  if (--referenced_.at(handle)->references == 0) referenced_.erase(handle);
  std::erase_if(all_, [](const auto& entry) { return entry.second.expired(); });
}

PhysicalPtr PhysicalHandles::find_file(int file) const {
  const auto identity = identity_of(file);
  for (const auto& [handle, weak] : all_)
    if (const PhysicalPtr memory = weak.lock();
        memory != nullptr && identity_of(memory->file()) == identity)
      return memory;
  return nullptr;
}

std::optional<uint64_t> Reservations::reserve(uint64_t size_bytes, uint64_t alignment,
                                              uint64_t hint) {
  const uint64_t room = size_bytes + alignment;
  if (room < size_bytes) return std::nullopt;
  std::byte* const start = map_nothing(reinterpret_cast<void*>(hint), room, 0);
  if (start == nullptr) return std::nullopt;
  std::byte* const bytes = map_nothing(nullptr, size_bytes, 0);
  if (bytes == nullptr) {
    munmap(start, room);
    return std::nullopt;
  }
  const uint64_t begin = reinterpret_cast<uint64_t>(start);
  const uint64_t address = (begin + alignment - 1) / alignment * alignment;
  if (address > begin) munmap(start, address - begin);
  if (const uint64_t after = begin + room - address - size_bytes; after > 0)
    munmap(reinterpret_cast<void*>(address + size_bytes), after);
  ranges_[address] = {address, size_bytes, bytes};
  return address;
}

void Reservations::release(uint64_t address) {
  const auto found = ranges_.find(address);
  munmap(reinterpret_cast<void*>(address), found->second.size_bytes);
  munmap(found->second.bytes, found->second.size_bytes);
  ranges_.erase(found);
}

const Reservations::Range* Reservations::find(uint64_t address) const {
  const auto after = ranges_.upper_bound(address);
  if (after == ranges_.begin()) return nullptr;
  const Range& range = std::prev(after)->second;
  return address - range.address < range.size_bytes ? &range : nullptr;
}

std::byte* Reservations::bytes_at(uint64_t address) const {
  const Range* range = find(address);
  return range->bytes + (address - range->address);
}

bool Reservations::map(uint64_t address, uint64_t size_bytes, const PhysicalMemory& memory) {
  return map_file(bytes_at(address), size_bytes, memory.file());
}

void Reservations::unmap(uint64_t address, uint64_t size_bytes) {
  map_nothing(bytes_at(address), size_bytes, MAP_FIXED);
  map_nothing(reinterpret_cast<void*>(address), size_bytes, MAP_FIXED);
}

bool Reservations::set_cpu_access(uint64_t address, uint64_t size_bytes,
                                  const PhysicalMemory& memory, bool allowed) {
  void* const at = reinterpret_cast<void*>(address);
  return allowed ? map_file(at, size_bytes, memory.file())
                 : map_nothing(at, size_bytes, MAP_FIXED) != nullptr;
}

}  // namespace braid::emulator
