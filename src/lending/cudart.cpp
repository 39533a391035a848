#include "lending/cudart.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "lending/lent_gpus.h"
#include "loader/libc_dlsym.h"
#include "loader/module.h"

// Declared under the runtime's own names. The runtime's header is not included: passing arguments
// on needs no types.
#pragma GCC visibility push(default)
extern "C" {
#define BRAID_CUDART_DECLARE(symbol, parameters, arguments) \
  braid::lending::CudartError symbol parameters;
namespace braid::lending {
BRAID_CUDART_HOOKS(BRAID_CUDART_DECLARE)
}
#undef BRAID_CUDART_DECLARE
}
#pragma GCC visibility pop

namespace braid::lending {
namespace {

using loader::find_in;
using loader::module_of;

constexpr CudartError kOutOfMemory = 2;             // cudaErrorMemoryAllocation
constexpr CudartError kSymbolNotFound = 302;        // cudaErrorSharedObjectSymbolNotFound
constexpr const char* kNoAddress = "ffff:ff:1f.7";  // of no GPU

// ---- What the program hears where GPUs are lent ----

Gpu seen(Gpu gpu) { return Gpu{hide_lent(static_cast<int>(gpu))}; }

template <typename Other>
Other seen(Other other) {
  return other;
}

// A lent number is replaced by one that no GPU has: so the error comes from the runtime itself, and
// cudaGetLastError returns it, too.
template <typename... Parameters>
CudartError answer(CudartError (*native)(Parameters...), Parameters... arguments) {
  return native(seen(arguments)...);
}

CudartError answer(CudartError (*native)(GpuCount*), GpuCount* count) {
  const CudartError result = native(count);
  if (result == kCudartSuccess) *count = GpuCount{std::min(static_cast<int>(*count), own_gpus())};
  return result;
}

CudartError answer(CudartError (*native)(Gpu*, const char*), Gpu* found, const char* address) {
  Gpu gpu{};
  const CudartError result = native(found == nullptr ? found : &gpu, address);
  if (result != kCudartSuccess) return result;
  if (is_lent(static_cast<int>(gpu))) return native(found, kNoAddress);
  *found = gpu;
  return result;
}

// The runtime may have chosen a lent GPU. Among the program's own GPUs it would choose the first,
// if they are of one kind.
CudartError answer(CudartError (*native)(Gpu*, const void*), Gpu* chosen, const void* wishes) {
  const CudartError result = native(chosen, wishes);
  if (result == kCudartSuccess && is_lent(static_cast<int>(*chosen))) *chosen = Gpu{0};
  return result;
}

CudartError answer(CudartError (*native)(const Gpu*, int), const Gpu* gpus, int count) try {
  if (gpus == nullptr || count <= 0) return native(gpus, count);
  std::vector<Gpu> all(gpus, gpus + count);
  for (Gpu& gpu : all) gpu = seen(gpu);
  return native(all.data(), count);
} catch (const std::bad_alloc&) {
  return kOutOfMemory;
}

// ---- The runtimes that are loaded ----

struct Cudart {
  const link_map* module;
  std::array<void*, kCudartHookCount> functions;  // null: this version has none
};

// Each is stored once, and never freed: a process has one or two runtimes.
constexpr size_t kMostCudarts = 8;
constinit std::array<std::atomic<const Cudart*>, kMostCudarts> cudarts{};

const char* name_of(CudartHookId hook) { return cudart_hooks()[static_cast<size_t>(hook)]; }

void* find_other(const link_map& module, CudartHookId hook) {
  void* const found = find_in(module, name_of(hook));
  return found != cudart_export(hook) ? found : nullptr;
}

// Its functions are called as long as the process lives, so it must stay.
std::unique_ptr<const Cudart> keep_cudart(const link_map& module) {
  loader::keep_loaded(module);
  auto cudart = std::make_unique<Cudart>(Cudart{&module, {}});
  for (int hook = 0; hook < kCudartHookCount; ++hook)
    cudart->functions[static_cast<size_t>(hook)] =
        find_other(module, static_cast<CudartHookId>(hook));
  return cudart;
}

// The place in `cudarts` of the runtime that `function` belongs to.
std::optional<size_t> place_of(void* function) {
  const link_map* const module = module_of(function);
  if (module == nullptr) return std::nullopt;
  std::unique_ptr<const Cudart> made;
  for (size_t place = 0; place < kMostCudarts; ++place) {
    const Cudart* there = cudarts[place].load(std::memory_order_acquire);
    if (there == nullptr) {
      if (made == nullptr) made = keep_cudart(*module);
      if (cudarts[place].compare_exchange_strong(there, made.get())) there = made.release();
    }
    if (there->module == module) return place;
  }
  return std::nullopt;
}

// ---- Which of them a linked call is for ----

// Places by the address that the call returns to, each in one word: address << 8 | place + 1. Code
// that is unloaded may leave its entry to other code at the same address; the runtime stays.
constexpr size_t kCallers = 256;
constinit std::array<std::atomic<uint64_t>, kCallers> callers{};

std::atomic<uint64_t>& entry_of(uint64_t caller) {
  return callers[(caller ^ caller >> 8) % kCallers];
}

std::optional<size_t> remembered(const void* caller) {
  const auto address = reinterpret_cast<uint64_t>(caller);
  const uint64_t entry = entry_of(address).load(std::memory_order_acquire);
  if (entry >> 8 != address) return std::nullopt;
  return (entry & 0xff) - 1;
}

void remember(const void* caller, size_t place) {
  const auto address = reinterpret_cast<uint64_t>(caller);
  entry_of(address).store(address << 8 | (place + 1), std::memory_order_release);
}

// No runtime is found by name for a library that was linked without naming its runtime, and for a
// call that another module makes for its caller (a tail call). Then the loaded runtime is used.
void* find_for_call(CudartHookId hook, const void* caller) {
  if (void* const found = cudart_behind(hook, caller)) return found;
  const link_map* const loaded = loader::module_named("libcudart");
  return loaded != nullptr ? find_other(*loaded, hook) : nullptr;
}

const Cudart* cudart_for_call(CudartHookId hook, const void* caller) noexcept try {
  std::optional<size_t> place = remembered(caller);
  if (!place) {
    void* const found = find_for_call(hook, caller);
    if (found == nullptr || !(place = place_of(found))) return nullptr;
    remember(caller, *place);
  }
  return cudarts[*place].load(std::memory_order_acquire);
} catch (const std::bad_alloc&) {
  return nullptr;
}

// ---- The hooks ----

// A runtime starts with the first call of its functions. That decides which GPUs are lent, if it
// was not decided before.
void decide_lending(const Cudart& cudart) {
  int count = 0;
  void* const starter = cudart.functions[k_cudaGetDeviceCount];
  if (!is_lending_decided() && starter != nullptr)
    reinterpret_cast<CudartError (*)(int*)>(starter)(&count);
}

template <typename... Parameters>
CudartError call(const Cudart* cudart, CudartHookId hook, Parameters... arguments) {
  void* const function = cudart != nullptr ? cudart->functions[static_cast<size_t>(hook)] : nullptr;
  if (function == nullptr) return kSymbolNotFound;
  auto* const native = reinterpret_cast<CudartError (*)(Parameters...)>(function);
  if (!may_lend()) return native(arguments...);
  decide_lending(*cudart);
  return answer(native, arguments...);
}

#define BRAID_CUDART_UNPACK(...) __VA_ARGS__

// The hooks that dlsym hands out: one function for each runtime.
template <size_t place>
struct HooksBefore {
#define BRAID_CUDART_BEFORE(symbol, parameters, arguments)                  \
  static CudartError symbol parameters {                                    \
    return call(cudarts[place].load(std::memory_order_acquire), k_##symbol, \
                BRAID_CUDART_UNPACK arguments);                             \
  }
  BRAID_CUDART_HOOKS(BRAID_CUDART_BEFORE)
#undef BRAID_CUDART_BEFORE

  static void* find(CudartHookId hook) {
#define BRAID_CUDART_ADDRESS(symbol, ...) reinterpret_cast<void*>(&HooksBefore::symbol),
    static void* const kAddresses[] = {BRAID_CUDART_HOOKS(BRAID_CUDART_ADDRESS)};
#undef BRAID_CUDART_ADDRESS
    return kAddresses[hook];
  }
};

template <size_t... places>
void* find_hook_before(size_t place, CudartHookId hook, std::index_sequence<places...>) {
  void* found = nullptr;
  ((place == places ? void(found = HooksBefore<places>::find(hook)) : void()), ...);
  return found;
}

}  // namespace

void* cudart_export(CudartHookId hook) {
#define BRAID_CUDART_ADDRESS(symbol, ...) reinterpret_cast<void*>(&symbol),
  static void* const kAddresses[] = {BRAID_CUDART_HOOKS(BRAID_CUDART_ADDRESS)};
#undef BRAID_CUDART_ADDRESS
  return kAddresses[hook];
}

// Searches the caller's own dependencies first: if there are two runtimes, the caller was linked
// against the one found there.
void* cudart_behind(CudartHookId hook, const void* caller) noexcept {
  const link_map* const module = module_of(caller);
  void* const own = module != nullptr ? find_other(*module, hook) : nullptr;
  return own != nullptr ? own : loader::libc_dlsym(RTLD_NEXT, name_of(hook));
}

void* cudart_hook_before(CudartHookId hook, void* found) noexcept try {
  if (found == nullptr || !may_lend()) return found;
  const auto place = place_of(found);
  if (!place || cudarts[*place].load()->functions[static_cast<size_t>(hook)] != found) return found;
  return find_hook_before(*place, hook, std::make_index_sequence<kMostCudarts>());
} catch (const std::bad_alloc&) {
  return found;
}

}  // namespace braid::lending

#define BRAID_CUDART_EXPORT(symbol, parameters, arguments)                            \
  CudartError symbol parameters {                                                     \
    return call(cudart_for_call(k_##symbol, __builtin_return_address(0)), k_##symbol, \
                BRAID_CUDART_UNPACK arguments);                                       \
  }
namespace braid::lending {
extern "C" {
BRAID_CUDART_HOOKS(BRAID_CUDART_EXPORT)
}
}  // namespace braid::lending
#undef BRAID_CUDART_EXPORT
