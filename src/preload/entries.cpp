// The resolvers, and the addresses that they and dlsym hand out.
#include "preload/entries.h"

#include <array>
#include <atomic>

#include "preload/binding.h"
#include "preload/state.h"

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

namespace {

// Replaces the driver's answer with braid's function when the table knows it.
void substitute(const char* base_name, void** function, int version, uint64_t flags) noexcept {
  if (base_name == nullptr || function == nullptr || *function == nullptr ||
      !is_driver_name(base_name) || !bind())
    return;
  std::array<void*, kHookCount> addresses{};
  for (int hook = 0; hook < kHookCount; ++hook)
    addresses[static_cast<size_t>(hook)] =
        driver_function(static_cast<HookId>(hook)).load(std::memory_order_acquire);
  const auto hook = resolve(base_name, version, flags, *function, addresses, CUDA_VERSION);
  if (!hook) return;
  void* missing = nullptr;  // the driver hands it out but exports no symbol for it
  driver_function(*hook).compare_exchange_strong(missing, *function);
  *function = replacement(*hook);
}

}  // namespace
}  // namespace braid::preload

using namespace braid::preload;

// The driver resolves first, with the program's own arguments; only a success is looked at.
CUresult cuGetProcAddress(const char* symbol, void** function, int version, cuuint64_t flags) {
  const CUresult result = forward(k_cuGetProcAddress, symbol, function, version, flags);
  if (result == CUDA_SUCCESS) substitute(symbol, function, version, flags);
  return result;
}

CUresult cuGetProcAddress_v2(const char* symbol, void** function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* status) {
  const CUresult result = forward(k_cuGetProcAddress_v2, symbol, function, version, flags, status);
  if (result == CUDA_SUCCESS) substitute(symbol, function, version, flags);
  return result;
}
