// The resolvers, and the addresses that they and dlsym hand out.
#include "preload/entries.h"

#include "preload/runtime.h"

namespace braid::preload {

void* replacement(HookId hook) {
// Programs may still use entry points that cuda.h advises against.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#define BRAID_ADDRESS(symbol, ...) reinterpret_cast<void*>(&::symbol),
  static void* const kAddresses[kHookCount] = {BRAID_HOOKS(BRAID_ADDRESS)};
#undef BRAID_ADDRESS
#pragma GCC diagnostic pop
  return kAddresses[hook];
}

}  // namespace braid::preload

using namespace braid::preload;

// The driver resolves first, with the program's own arguments; only a success is looked at.
CUresult cuGetProcAddress(const char* symbol, void** function, int version, cuuint64_t flags) {
  auto* native = real<decltype(cuGetProcAddress)>(k_cuGetProcAddress);
  if (native == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  const CUresult result = native(symbol, function, version, flags);
  if (result == CUDA_SUCCESS) substitute(symbol, function, version, flags);
  return result;
}

CUresult cuGetProcAddress_v2(const char* symbol, void** function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* status) {
  auto* native = real<decltype(cuGetProcAddress_v2)>(k_cuGetProcAddress_v2);
  if (native == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  const CUresult result = native(symbol, function, version, flags, status);
  if (result == CUDA_SUCCESS) substitute(symbol, function, version, flags);
  return result;
}
