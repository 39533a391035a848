#include "kv/host_pool.h"

#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <string>

#include "base/try.h"
#include "base/units.h"
#include "cuda/relaxed_capture.h"

namespace braid::kv {
namespace {

constexpr uint64_t kHugePageBytes = 2 << 20;

// The host's node that is nearest to the current context's GPU; -1: unknown, or the only one.
int nearest_node(const cuda::Driver& driver) {
  CUdevice device = 0;
  int node = -1;
  if (driver.cuCtxGetDevice(&device) != CUDA_SUCCESS ||
      driver.cuDeviceGetAttribute(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, device) != CUDA_SUCCESS)
    return -1;
  return node;
}

// Prefers a node for pages that are not touched yet. Other nodes are used if it has no room.
void prefer_node(void* first, uint64_t size_bytes, int node) {
  constexpr unsigned kWordBits = 64;
  std::array<uint64_t, 16> nodes{};
  if (node < 0 || static_cast<size_t>(node) >= nodes.size() * kWordBits) return;
  nodes[static_cast<size_t>(node) / kWordBits] = uint64_t{1} << (node % kWordBits);
  syscall(SYS_mbind, first, size_bytes, MPOL_PREFERRED, nodes.data(), nodes.size() * kWordBits, 0);
}

}  // namespace

Result<std::unique_ptr<HostPool>> HostPool::open(const cuda::Driver& driver, uint64_t size_bytes) {
  void* mapping = mmap(nullptr, size_bytes + kHugePageBytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED)
    return Status::error("no memory for a host pool of " + format_size(size_bytes),
                         "Give fewer host slots");
  std::unique_ptr<HostPool> pool(new HostPool(driver, mapping, size_bytes));
  BRAID_TRY(pool->pin());
  return pool;
}

HostPool::HostPool(const cuda::Driver& driver, void* mapping, uint64_t size_bytes)
    : driver_(driver), mapping_(mapping), size_bytes_(size_bytes) {
  const auto address = reinterpret_cast<uintptr_t>(mapping);
  data_ = reinterpret_cast<std::byte*>((address + kHugePageBytes - 1) / kHugePageBytes *
                                       kHugePageBytes);
}

Status HostPool::pin() {
  madvise(data_, size_bytes_, MADV_HUGEPAGE);
  madvise(data_, size_bytes_, MADV_DONTFORK);
  prefer_node(data_, size_bytes_, nearest_node(driver_));
  BRAID_TRY(
      driver_.check(driver_.cuMemHostRegister(data_, size_bytes_, CU_MEMHOSTREGISTER_PORTABLE),
                    "pinning a host pool of " + format_size(size_bytes_)));
  is_pinned_ = true;
  return {};
}

// What the driver keeps registered stays mapped: it would take other memory that comes to these
// addresses for this, and copy to pages that are gone.
HostPool::~HostPool() {
  const cuda::RelaxedCapture relaxed(driver_);
  if (is_pinned_ && driver_.cuMemHostUnregister(data_) != CUDA_SUCCESS) return;
  munmap(mapping_, size_bytes_ + kHugePageBytes);
}

}  // namespace braid::kv
