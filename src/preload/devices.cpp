// Lending: the driver is started with more GPUs than the program sees, and everything that the
// program can ask about a GPU by its number is answered as if the lent ones were not there.
//
// CUDA_VISIBLE_DEVICES is wider only while the driver reads it, inside cuInit: the program reads,
// and its children inherit, what the user or the program's launcher wrote.
#include "preload/devices.h"

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string>

#include "preload/entries.h"
#include "preload/lend.h"
#include "preload/runtime.h"

namespace braid::preload {
namespace {

constexpr const char* kVisibleVariable = "CUDA_VISIBLE_DEVICES";

struct Lending {
  std::mutex starting;                  // guards is_settled; no other thread may see half a start
  bool is_settled = false;              // cuInit has succeeded once
  std::atomic<int> own_count{INT_MAX};  // GPUs from this number on are lent
  std::atomic<int> all_count{INT_MAX};  // and end before this one
};

constinit Lending lending;

using Init = CUresult(unsigned flags);

std::optional<WidenedDevices> devices_to_show() try {
  const char* const lendable = std::getenv(kLendVariable);
  const char* const visible = std::getenv(kVisibleVariable);
  if (lendable == nullptr || visible == nullptr) return std::nullopt;
  const auto gpus = parse_lendable(lendable);
  if (gpus.ok()) return widen(visible, gpus.value());
  say_once((gpus.status().message() + ". No GPU is lent").c_str());
  return std::nullopt;
} catch (...) {
  return std::nullopt;
}

int count_devices() noexcept {
  int count = 0;
  auto* native = real<CUresult(int*)>(k_cuDeviceGetCount);
  return native != nullptr && native(&count) == CUDA_SUCCESS ? count : 0;
}

// The variable exists already, so its entry in `environ` is replaced in one store.
CUresult start_with(Init* native, unsigned flags, const WidenedDevices& devices) {
  const std::string own = std::getenv(kVisibleVariable);
  setenv(kVisibleVariable, devices.visible.c_str(), 1);
  const CUresult result = native(flags);
  setenv(kVisibleVariable, own.c_str(), 1);
  if (result != CUDA_SUCCESS) return native(flags);  // the answer without lending
  // The driver's list ends at the first entry that names no GPU: it may be one of the program's.
  const int count = count_devices();
  lending.own_count.store(std::min(devices.own_count, count));
  lending.all_count.store(count);
  return result;
}

CUresult start(Init* native, unsigned flags) try {
  const std::lock_guard hold(lending.starting);
  if (lending.is_settled) return native(flags);
  const auto devices = devices_to_show();
  const CUresult result = devices ? start_with(native, flags, *devices) : native(flags);
  lending.is_settled = result == CUDA_SUCCESS;
  return result;
} catch (...) {
  return CUDA_ERROR_OUT_OF_MEMORY;
}

bool is_lent(CUdevice device) noexcept {
  return device >= lending.own_count.load(std::memory_order_relaxed) &&
         device < lending.all_count.load(std::memory_order_relaxed) && !Inside::now();
}

template <typename... Arguments>
CUresult forward(HookId hook, Arguments... arguments) {
  auto* native = real<CUresult(Arguments...)>(hook);
  return native != nullptr ? native(arguments...) : CUDA_ERROR_NOT_INITIALIZED;
}

}  // namespace

CUdevice as_program_sees(CUdevice device) noexcept {
  return is_lent(device) ? lending.all_count.load(std::memory_order_relaxed) : device;
}

}  // namespace braid::preload

using namespace braid::preload;

CUresult cuInit(unsigned flags) {
  auto* native = real<Init>(k_cuInit);
  return native != nullptr ? start(native, flags) : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult cuDeviceGetCount(int* count) {
  const CUresult result = forward(k_cuDeviceGetCount, count);
  if (result == CUDA_SUCCESS && !Inside::now())
    *count = std::min(*count, lending.own_count.load(std::memory_order_relaxed));
  return result;
}

CUresult cuDeviceGetByPCIBusId(CUdevice* device, const char* id) {
  CUdevice found = 0;
  const CUresult result = forward(k_cuDeviceGetByPCIBusId, device == nullptr ? device : &found, id);
  if (result != CUDA_SUCCESS) return result;
  if (is_lent(found)) return CUDA_ERROR_INVALID_DEVICE;
  *device = found;
  return result;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  return forward(k_cuDeviceGet, device, as_program_sees(ordinal));
}

CUresult cuDeviceGetName(char* name, int size, CUdevice device) {
  return forward(k_cuDeviceGetName, name, size, as_program_sees(device));
}

CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  return forward(k_cuDeviceGetUuid, uuid, as_program_sees(device));
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  return forward(k_cuDeviceGetUuid_v2, uuid, as_program_sees(device));
}

CUresult cuDeviceTotalMem_v2(size_t* size_bytes, CUdevice device) {
  return forward(k_cuDeviceTotalMem_v2, size_bytes, as_program_sees(device));
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  return forward(k_cuDeviceGetAttribute, value, attribute, as_program_sees(device));
}

CUresult cuDeviceGetProperties(CUdevprop* properties, CUdevice device) {
  return forward(k_cuDeviceGetProperties, properties, as_program_sees(device));
}

CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice device) {
  return forward(k_cuDeviceComputeCapability, major, minor, as_program_sees(device));
}

CUresult cuDeviceGetPCIBusId(char* id, int size, CUdevice device) {
  return forward(k_cuDeviceGetPCIBusId, id, size, as_program_sees(device));
}

CUresult cuDeviceCanAccessPeer(int* possible, CUdevice device, CUdevice peer) {
  return forward(k_cuDeviceCanAccessPeer, possible, as_program_sees(device), as_program_sees(peer));
}

CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attribute, CUdevice from,
                                 CUdevice to) {
  return forward(k_cuDeviceGetP2PAttribute, value, attribute, as_program_sees(from),
                 as_program_sees(to));
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned flags) {
  return forward(k_cuDevicePrimaryCtxSetFlags, as_program_sees(device), flags);
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags) {
  return forward(k_cuDevicePrimaryCtxSetFlags_v2, as_program_sees(device), flags);
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice device) {
  return forward(k_cuDeviceGetDefaultMemPool, pool, as_program_sees(device));
}

CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice device) {
  return forward(k_cuDeviceGetMemPool, pool, as_program_sees(device));
}

CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool) {
  return forward(k_cuDeviceSetMemPool, as_program_sees(device), pool);
}
