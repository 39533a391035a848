// Access to mapped ranges and to pools: what the program sets is noted, and the relays of the
// memory's GPU are let in besides. Every pool is seen when it is made, so nothing need be asked
// when memory is allocated. None of this is on a copy's path, so it may allocate and lock.
#include "preload/access.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "preload/access_calls.h"
#include "preload/access_ledger.h"
#include "preload/binding.h"
#include "preload/devices.h"
#include "preload/entries.h"
#include "preload/renewed_in_child.h"
#include "preload/state.h"
#include "preload/uncancelled_scope.h"

namespace braid::preload {
namespace {

using multipath::gpu_bit;
using AccessDescs = AccessLedger::AccessDescs;

// No driver call is made under the lock: it may take its time, and other threads of the program
// have other memory to ask about, or to free.
struct Ledger {
  std::mutex lock;
  AccessLedger access;
  AccessCalls<MappedRange> range_calls;
  AccessCalls<GpuPool> pool_calls;
  std::vector<CUmemoryPool> granting;  // named by braid's own calls that are under way
  std::condition_variable granted;     // one of those has ended
  bool is_granting = false;  // relays are open; what is made before is granted when they are

  AccessCalls<MappedRange>& calls(const MappedRange&) { return range_calls; }
  AccessCalls<GpuPool>& calls(const GpuPool&) { return pool_calls; }
};

Ledger& ledger() { return renewed_in_child<Ledger>(); }

// What the ledger knows the memory by.
const MappedRange& key_of(const MappedRange& range) { return range; }
CUmemoryPool key_of(const GpuPool& pool) { return pool.pool; }

GpuSet relays_to_grant(multipath::Engine& open, const MappedRange& range) {
  return open.relays_to_grant(range.address, range.size_bytes);
}
GpuSet relays_to_grant(multipath::Engine& open, const GpuPool& pool) {
  return pool.gpu >= 0 ? open.relays_to_grant(pool.gpu) : 0;
}

bool grant_to(GpuSet relays, multipath::Engine& open, const MappedRange& range) {
  return open.grant_to(relays, range.address, range.size_bytes);
}
bool grant_to(GpuSet relays, multipath::Engine& open, const GpuPool& pool) {
  return open.grant_to(relays, pool.pool);
}

bool knows(const MappedRange& range) { return ledger().access.knows(range); }
bool knows(const GpuPool& pool) { return ledger().access.knows(pool.pool, pool.gpu); }

// The driver follows the handle of a pool, so the pool stays until braid's call that names it has
// ended. It looks up the addresses of a range, and refuses them once they are unmapped.
void begin_naming(const MappedRange&) {}
void begin_naming(const GpuPool& pool) { ledger().granting.push_back(pool.pool); }
void end_naming(const MappedRange&) {}
void end_naming(const GpuPool& pool) {
  std::vector<CUmemoryPool>& all = ledger().granting;
  all.erase(std::find(all.begin(), all.end(), pool.pool));
  ledger().granted.notify_all();
}

// braid's call waits for nothing itself (docs/measurements/2026-11-27-2xH100-probes.md).
void wait_until_unnamed(std::unique_lock<std::mutex>&, const MappedRange&) {}
void wait_until_unnamed(std::unique_lock<std::mutex>& hold, CUmemoryPool pool) {
  const UncancelledScope uncancelled;
  ledger().granted.wait(hold, [pool] { return std::ranges::count(ledger().granting, pool) == 0; });
}

// A call of braid's that grants access. It does not begin if the program has freed the memory since
// braid listed it, or if a call that is under way names the memory, and makes up for this.
template <typename Memory>
class Granting {
 public:
  Granting(const Memory& memory, GpuSet relays) : memory_(memory) {
    const std::lock_guard hold(ledger().lock);
    if (!knows(memory) || ledger().calls(memory).postpone(memory)) return;
    ledger().access.grant(key_of(memory), relays);
    begin_naming(memory);
    has_begun_ = true;
  }
  ~Granting() {
    if (!has_begun_) return;
    const std::lock_guard hold(ledger().lock);
    end_naming(memory_);
  }
  Granting(const Granting&) = delete;
  Granting& operator=(const Granting&) = delete;

  bool has_begun() const { return has_begun_; }

 private:
  const Memory memory_;
  bool has_begun_ = false;
};

// Noted before, so that a call of the program's that comes meanwhile keeps the access; and after,
// since by then other memory may have the addresses.
template <typename Memory>
void grant(multipath::Engine& open, const Memory& memory) {
  const ReentryGuard guard;
  const GpuSet relays = relays_to_grant(open, memory);
  if (relays == 0) return;
  const Granting granting(memory, relays);
  if (!granting.has_begun() || !grant_to(relays, open, memory)) return;
  const std::lock_guard hold(ledger().lock);
  ledger().access.grant(key_of(memory), relays);
}

// The program's call has its answer by then. What is not granted takes fewer paths.
template <typename Memory>
void grant(const std::vector<Memory>& all) noexcept try {
  multipath::Engine* open = engine();
  if (open == nullptr) return;
  for (const Memory& memory : all) grant(*open, memory);
} catch (...) {
}

// A call of the program that sets access.
template <typename Memory>
class Setting {
 public:
  explicit Setting(const Memory& memory) : memory_(memory) {
    const std::lock_guard hold(ledger().lock);
    granted_ = ledger().access.granted(key_of(memory));
    place_ = ledger().calls(memory).begin(memory);
  }
  ~Setting() {
    if (is_under_way_) (void)end();
  }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

  /// GPUs that keep their access.
  GpuSet granted() const { return granted_; }

  /// The driver has refused. Returns what is to be granted now.
  std::vector<Memory> end() noexcept {
    const std::lock_guard hold(ledger().lock);
    return end_locked();
  }
  /// The driver has carried it out. Likewise.
  std::vector<Memory> end(AccessDescs descs) {
    const std::lock_guard hold(ledger().lock);
    ledger().access.set(key_of(memory_), descs);
    std::vector<Memory> to_grant = end_locked();
    if (ledger().is_granting) to_grant.push_back(memory_);
    return to_grant;
  }

 private:
  std::vector<Memory> end_locked() noexcept {
    is_under_way_ = false;
    return ledger().calls(memory_).end(place_);
  }

  const Memory memory_;
  GpuSet granted_ = 0;
  typename AccessCalls<Memory>::Place place_;
  bool is_under_way_ = true;
};

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

template <typename Memory, typename Native>
CUresult set_access(const Memory& memory, AccessDescs descs, const Native& native) try {
  Setting<Memory> setting(memory);
  const CUresult answer = set_keeping(setting.granted(), descs, native);
  grant(answer == CUDA_SUCCESS ? setting.end(descs) : setting.end());
  return answer;
} catch (...) {
  return CUDA_ERROR_OUT_OF_MEMORY;
}

// Only memory of a GPU, and of this process alone, is granted.
void pool_made(CUmemoryPool pool, const CUmemPoolProps& properties) noexcept try {
  if (properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
      properties.handleTypes != CU_MEM_HANDLE_TYPE_NONE)
    return;
  const GpuPool made{pool, properties.location.id};
  {
    const std::lock_guard hold(ledger().lock);
    ledger().access.add(made.pool, made.gpu);
    if (!ledger().is_granting) return;
  }
  grant(std::vector{made});
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
template <typename Key, typename... Arguments>
CUresult free_memory(HookId hook, const Key& memory, Arguments... arguments) noexcept {
  if (is_for_driver()) return forward(hook, arguments...);
  decltype(ledger().access.forget(memory)) forgotten;
  try {
    std::unique_lock hold(ledger().lock);
    forgotten = ledger().access.forget(memory);  // no grant of it begins any more
    wait_until_unnamed(hold, memory);
  } catch (...) {
  }
  const CUresult result = forward(hook, arguments...);
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
  std::vector<MappedRange> ranges;
  std::vector<std::pair<CUmemoryPool, int>> pools;
  const auto default_pools = open.default_pools();
  {
    const std::lock_guard hold(ledger().lock);
    for (const auto& [pool, gpu] : default_pools) ledger().access.add_default(pool, gpu);
    ledger().is_granting = true;  // what is made from now on is granted by who makes it
    ranges = ledger().access.ranges();
    pools = ledger().access.pools();
  }
  for (const MappedRange& range : ranges) grant(open, range);
  for (const auto& [pool, gpu] : pools) grant(open, GpuPool{pool, gpu});
}

}  // namespace braid::preload

using namespace braid::preload;

CUresult cuMemSetAccess(CUdeviceptr address, size_t size_bytes, const CUmemAccessDesc* descs,
                        size_t count) {
  auto* native = real<SetRange>(k_cuMemSetAccess);
  if (native == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (is_for_driver() || descs == nullptr || count == 0)
    return native(address, size_bytes, descs, count);
  return set_access(
      MappedRange{address, size_bytes}, {descs, count},
      [&](const CUmemAccessDesc* all) { return native(address, size_bytes, all, count); });
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
  return free_memory(k_cuMemUnmap, MappedRange{address, size_bytes}, address, size_bytes);
}

CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* properties) {
  if (is_for_driver() || properties == nullptr) return forward(k_cuMemPoolCreate, pool, properties);
  CUmemPoolProps seen = *properties;
  seen.location = as_program_sees(seen.location);
  const CUresult result = forward(k_cuMemPoolCreate, pool, &seen);
  if (result == CUDA_SUCCESS) pool_made(*pool, seen);
  return result;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) { return free_memory(k_cuMemPoolDestroy, pool, pool); }

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc* descs, size_t count) {
  auto* native = real<SetPool>(k_cuMemPoolSetAccess);
  if (native == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (is_for_driver() || descs == nullptr || count == 0) return native(pool, descs, count);
  return set_access(GpuPool{pool}, {descs, count},
                    [&](const CUmemAccessDesc* all) { return native(pool, all, count); });
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
