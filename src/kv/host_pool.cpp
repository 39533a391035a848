#include "kv/host_pool.h"

#include <string>

#include "base/try.h"
#include "base/units.h"
#include "cuda/relaxed_capture.h"

namespace braid::kv {
namespace {

// The host's node that is nearest to the current context's GPU; -1: unknown, or the only one.
int nearest_node(const cuda::Driver& driver) {
  CUdevice device = 0;
  int node = -1;
  if (driver.cuCtxGetDevice(&device) != CUDA_SUCCESS ||
      driver.cuDeviceGetAttribute(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, device) != CUDA_SUCCESS)
    return -1;
  return node;
}

}  // namespace

Result<std::unique_ptr<HostPool>> HostPool::open(const cuda::Driver& driver, uint64_t size_bytes) {
  auto pages = HugePages::map(size_bytes, {.is_reserved = false, .node = nearest_node(driver)});
  if (!pages.ok())
    return Status::error("no memory for a host pool of " + format_size(size_bytes),
                         "Give fewer host slots");
  std::unique_ptr<HostPool> pool(new HostPool(driver, std::move(pages).value()));
  BRAID_TRY(pool->pin());
  return pool;
}

Status HostPool::pin() {
  const std::span<std::byte> bytes = pages_.bytes();
  BRAID_TRY(driver_.check(
      driver_.cuMemHostRegister(bytes.data(), bytes.size(), CU_MEMHOSTREGISTER_PORTABLE),
      "pinning a host pool of " + format_size(bytes.size())));
  is_pinned_ = true;
  return {};
}

// What the driver keeps registered stays mapped: it would take other memory that comes to these
// addresses for this, and copy to pages that are gone.
HostPool::~HostPool() {
  const cuda::RelaxedCapture relaxed(driver_);
  if (is_pinned_ && driver_.cuMemHostUnregister(data()) != CUDA_SUCCESS) pages_.leave_mapped();
}

}  // namespace braid::kv
