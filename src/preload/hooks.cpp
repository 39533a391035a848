#include "preload/hooks.h"

#include <cstring>

namespace braid::preload {
namespace {

// Text of a symbol as written here: cuda.h, which renames some of them, is not included on purpose.
#define BRAID_ROW(symbol, base_name, since, until, flags, kind) \
  {#symbol, base_name, since, until, Flags::flags, HookKind::kind},
constexpr Hook kHooks[kHookCount] = {BRAID_HOOKS(BRAID_ROW)};
#undef BRAID_ROW

constexpr uint64_t kLegacyStream = 1;     // CU_GET_PROC_ADDRESS_LEGACY_STREAM
constexpr uint64_t kPerThreadStream = 2;  // CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM

bool flags_lead_to(const Hook& hook, uint64_t flags) {
  switch (hook.flags) {
    case Flags::kAny: return flags <= kPerThreadStream;
    case Flags::kLegacy: return flags <= kLegacyStream;
    case Flags::kPerThread: return flags == kPerThreadStream;
  }
  return false;
}

bool is_known_request(const Hook& hook, int version, uint64_t flags) {
  return hook.since != kUnversioned && version >= hook.since && version < hook.until &&
         flags_lead_to(hook, flags);
}

bool same(const char* a, const char* b) { return std::strcmp(a, b) == 0; }

}  // namespace

std::span<const Hook, kHookCount> hooks() { return kHooks; }

bool is_driver_name(const char* name) {
  return name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z';
}

std::optional<HookId> find_symbol(const char* symbol) {
  for (int id = 0; id < kHookCount; ++id)
    if (same(kHooks[id].symbol, symbol)) return static_cast<HookId>(id);
  return std::nullopt;
}

std::optional<HookId> resolve(const char* base_name, int version, uint64_t flags,
                              const void* returned, std::span<void* const, kHookCount> real,
                              int newest_version) {
  std::optional<HookId> by_address;
  std::optional<HookId> by_request;
  for (int id = 0; id < kHookCount; ++id) {
    if (!same(kHooks[id].base_name, base_name)) continue;
    const auto index = static_cast<size_t>(id);
    const bool is_answer = real[index] == returned;
    const bool is_request = is_known_request(kHooks[id], version, flags);
    // Two symbols may share one address; the request then says which is meant.
    if (is_answer && (is_request || !by_address)) by_address = static_cast<HookId>(id);
    if (is_request) by_request = static_cast<HookId>(id);
  }
  if (by_address) return by_address;
  return version <= newest_version ? by_request : std::nullopt;
}

}  // namespace braid::preload
