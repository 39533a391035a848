// Everything that the program can ask about a GPU by its number is answered as if the GPUs that are
// lent to braid were not there.
#include "preload/devices.h"

#include <algorithm>

#include "lending/cudart_start.h"
#include "lending/lent_gpus.h"
#include "preload/binding.h"
#include "preload/entries.h"
#include "preload/messages.h"
#include "preload/state.h"

namespace braid::preload {
namespace {

// braid names every GPU, and so does a copy of CUDA's runtime library that is starting.
bool asks_for_program() noexcept {
  return !ReentryGuard::is_active() && !lending::CudartStart::now();
}

}  // namespace

CUdevice as_program_sees(CUdevice device) noexcept {
  return asks_for_program() ? lending::hide_lent(device) : device;
}

CUdevice to_make_context_on(CUdevice device) noexcept {
  lending::CudartStart::context_requested();
  return as_program_sees(device);
}

}  // namespace braid::preload

using namespace braid::preload;
namespace lending = braid::lending;

CUresult cuInit(unsigned flags) {
  auto* native = real<decltype(cuInit)>(k_cuInit);
  if (native == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  return lending::start_driver({native, real<CUresult(int*)>(k_cuDeviceGetCount), say_once}, flags,
                               __builtin_return_address(0));
}

CUresult cuGetExportTable(const void** table, const CUuuid* id) {
  if (id != nullptr && lending::may_lend()) lending::CudartStart::table_requested(*id);
  return forward(k_cuGetExportTable, table, id);
}

CUresult cuDeviceGetCount(int* count) {
  const CUresult result = forward(k_cuDeviceGetCount, count);
  if (result == CUDA_SUCCESS && asks_for_program()) *count = std::min(*count, lending::own_gpus());
  return result;
}

CUresult cuDeviceGetByPCIBusId(CUdevice* device, const char* id) {
  CUdevice found = 0;
  const CUresult result = forward(k_cuDeviceGetByPCIBusId, device == nullptr ? device : &found, id);
  if (result != CUDA_SUCCESS) return result;
  if (found != as_program_sees(found)) return CUDA_ERROR_INVALID_DEVICE;
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
