// Access to mapped ranges and to pools: what the program sets is noted, and the relays of the
// memory's GPU are let in besides. Every pool is seen when it is made, so nothing need be asked
// when memory is allocated. None of this is on a copy's path, so it may allocate and lock.
#include "preload/access.h"

#include <mutex>
#include <optional>
#include <vector>

#include "preload/access_ledger.h"
#include "preload/binding.h"
#include "preload/devices.h"
#include "preload/entries.h"
#include "preload/renewed_in_child.h"
#include "preload/state.h"

namespace braid::preload {
namespace {

using multipath::gpu_bit;
using AccessDescs = AccessLedger::AccessDescs;

struct Ledger {
  std::mutex lock;
  AccessLedger access;
  bool is_granting = false;  // relays are open; what is made before is granted when they are
};

Ledger& ledger() { return renewed_in_child<Ledger>(); }

// With the ledger locked: the range or pool is there, and the program may have set its access.
void grant(Ledger& all, CUdeviceptr address, size_t size_bytes) {
  multipath::Engine* open = engine();
  if (open == nullptr || !all.is_granting) return;
  const ReentryGuard guard;
  if (const GpuSet gpus = open->grant(address, size_bytes))
    all.access.grant(address, size_bytes, gpus);
}

void grant(Ledger& all, CUmemoryPool pool, int gpu) {
  multipath::Engine* open = engine();
  if (open == nullptr || !all.is_granting) return;
  const ReentryGuard guard;
  if (const GpuSet gpus = open->grant(pool, gpu)) all.access.grant(pool, gpus);
}

CUmemLocation as_program_sees(CUmemLocation location) {
  if (location.type == CU_MEM_LOCATION_TYPE_DEVICE)
    location.id = preload::as_program_sees(location.id);
  return location;
}

std::vector<CUmemAccessDesc> as_program_sees(AccessDescs descs) {
  std::vector<CUmemAccessDesc> seen(descs.begin(), descs.end());
  for (CUmemAccessDesc& desc : seen) desc.location = as_program_sees(desc.location);
  return seen;
}

// The request, but for GPUs that keep all access.
std::vector<CUmemAccessDesc> keeping(GpuSet granted, std::vector<CUmemAccessDesc> descs) {
  for (CUmemAccessDesc& desc : descs) {
    const bool is_kept = desc.location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
                         (granted & gpu_bit(desc.location.id)) != 0;
    if (is_kept && (desc.flags == CU_MEM_ACCESS_FLAGS_PROT_NONE ||
                    desc.flags == CU_MEM_ACCESS_FLAGS_PROT_READ))
      desc.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  }
  return descs;
}

// `native(descs)` asks the driver.
template <typename Native>
CUresult set_keeping(GpuSet granted, AccessDescs descs, const Native& native) {
  const std::vector<CUmemAccessDesc> seen = as_program_sees(descs);
  if (granted == 0) return native(seen.data());
  // What the program hears of a refusal is the driver's answer to its own request.
  const CUresult answer = native(keeping(granted, seen).data());
  return answer == CUDA_SUCCESS ? answer : native(seen.data());
}

using SetRange = CUresult(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t);
using SetPool = CUresult(CUmemoryPool, const CUmemAccessDesc*, size_t);

CUresult set_range(SetRange* native, CUdeviceptr address, size_t size_bytes,
                   AccessDescs descs) try {
  AccessLedger& access = ledger().access;
  const std::lock_guard hold(ledger().lock);
  const CUresult answer = set_keeping(
      access.granted(address, size_bytes), descs,
      [&](const CUmemAccessDesc* all) { return native(address, size_bytes, all, descs.size()); });
  if (answer != CUDA_SUCCESS) return answer;
  access.set(address, size_bytes, descs);
  grant(ledger(), address, size_bytes);
  return answer;
} catch (...) {
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult set_pool(SetPool* native, CUmemoryPool pool, AccessDescs descs) try {
  AccessLedger& access = ledger().access;
  const std::lock_guard hold(ledger().lock);
  const CUresult answer = set_keeping(access.granted(pool), descs, [&](const CUmemAccessDesc* all) {
    return native(pool, all, descs.size());
  });
  if (answer == CUDA_SUCCESS) access.set(pool, descs);
  return answer;
} catch (...) {
  return CUDA_ERROR_OUT_OF_MEMORY;
}

// Only memory of a GPU, and of this process alone, is granted.
void pool_made(CUmemoryPool pool, const CUmemPoolProps& properties) noexcept try {
  if (properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
      properties.handleTypes != CU_MEM_HANDLE_TYPE_NONE)
    return;
  const std::lock_guard hold(ledger().lock);
  ledger().access.add(pool, properties.location.id);
  grant(ledger(), pool, properties.location.id);
} catch (...) {
}

template <typename Memory>
std::optional<CUmemAccess_flags> answer(Memory memory, const CUmemLocation& location) noexcept try {
  if (location.type != CU_MEM_LOCATION_TYPE_DEVICE) return std::nullopt;
  const std::lock_guard hold(ledger().lock);
  return ledger().access.answer(memory, location.id);
} catch (...) {
  return std::nullopt;
}

// Memory that the driver is about to free: another thread may be given the same addresses right
// after. What the driver refuses to free, relays can still reach, and copies under way may use.
template <typename... Memory>
CUresult free_memory(HookId hook, Memory... memory) noexcept {
  if (is_for_driver()) return forward(hook, memory...);
  decltype(ledger().access.forget(memory...)) forgotten;
  try {
    const std::lock_guard hold(ledger().lock);
    forgotten = ledger().access.forget(memory...);
  } catch (...) {
  }
  const CUresult result = forward(hook, memory...);
  if (result == CUDA_SUCCESS || forgotten.empty()) return result;
  try {
    const std::lock_guard hold(ledger().lock);
    ledger().access.restore(forgotten);
  } catch (...) {
  }
  return result;
}

}  // namespace

void grant_memory_made_so_far(multipath::Engine& open) {
  Ledger& all = ledger();
  const std::lock_guard hold(all.lock);
  all.is_granting = true;
  for (const auto& [address, size_bytes] : all.access.ranges()) grant(all, address, size_bytes);
  for (const auto& [pool, gpu] : all.access.pools()) grant(all, pool, gpu);
  for (const auto& [pool, gpus] : open.grant_default_pools()) all.access.grant(pool, gpus);
}

}  // namespace braid::preload

using namespace braid::preload;

CUresult cuMemSetAccess(CUdeviceptr address, size_t size_bytes, const CUmemAccessDesc* descs,
                        size_t count) {
  auto* native = real<SetRange>(k_cuMemSetAccess);
  if (native == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (is_for_driver() || descs == nullptr || count == 0)
    return native(address, size_bytes, descs, count);
  return set_range(native, address, size_bytes, {descs, count});
}

CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location,
                        CUdeviceptr address) {
  if (is_for_driver() || location == nullptr)
    return forward(k_cuMemGetAccess, flags, location, address);
  const CUmemLocation seen = as_program_sees(*location);
  const CUresult result = forward(k_cuMemGetAccess, flags, &seen, address);
  if (result != CUDA_SUCCESS) return result;
  if (const auto set = answer(address, seen)) *flags = *set;
  return result;
}

CUresult cuMemUnmap(CUdeviceptr address, size_t size_bytes) {
  return free_memory(k_cuMemUnmap, address, size_bytes);
}

CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* properties) {
  if (is_for_driver() || properties == nullptr) return forward(k_cuMemPoolCreate, pool, properties);
  CUmemPoolProps seen = *properties;
  seen.location = as_program_sees(seen.location);
  const CUresult result = forward(k_cuMemPoolCreate, pool, &seen);
  if (result == CUDA_SUCCESS) pool_made(*pool, seen);
  return result;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) { return free_memory(k_cuMemPoolDestroy, pool); }

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc* descs, size_t count) {
  auto* native = real<SetPool>(k_cuMemPoolSetAccess);
  if (native == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (is_for_driver() || descs == nullptr || count == 0) return native(pool, descs, count);
  return set_pool(native, pool, {descs, count});
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool pool, CUmemLocation* location) {
  if (is_for_driver() || location == nullptr)
    return forward(k_cuMemPoolGetAccess, flags, pool, location);
  CUmemLocation seen = as_program_sees(*location);
  const CUresult result = forward(k_cuMemPoolGetAccess, flags, pool, &seen);
  if (result != CUDA_SUCCESS) return result;
  if (const auto set = answer(pool, seen)) *flags = *set;
  return result;
}
