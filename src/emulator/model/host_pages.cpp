#include "emulator/model/host_pages.h"

#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <fstream>
#include <string>

namespace braid::emulator {
namespace {

constexpr uint64_t kPage = 4096;

}  // namespace

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

// Probing would change the bytes, so the kernel's list is read; it is sorted by address.
bool is_writable(const void* address, uint64_t size_bytes) {
  uint64_t reached = reinterpret_cast<uint64_t>(address);
  const uint64_t end = reached + size_bytes;
  if (reached == 0 || end < reached) return false;
  std::ifstream maps("/proc/self/maps");
  if (!maps) return true;  // the kernel does not let us ask
  for (std::string line; reached < end && std::getline(maps, line);) {
    unsigned long first = 0;
    unsigned long last = 0;
    char read = 0;
    char write = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx %c%c", &first, &last, &read, &write) != 4) continue;
    if (last <= reached) continue;
    if (first > reached || write != 'w') return false;
    reached = last;
  }
  return reached >= end;
}

}  // namespace braid::emulator
