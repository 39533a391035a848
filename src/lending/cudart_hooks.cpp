#include "lending/cudart_hooks.h"

#include <cstring>

namespace braid::lending {
namespace {

#define BRAID_CUDART_NAME(symbol, ...) #symbol,
constexpr const char* kSymbols[kCudartHookCount] = {BRAID_CUDART_HOOKS(BRAID_CUDART_NAME)};
#undef BRAID_CUDART_NAME

}  // namespace

std::span<const char* const, kCudartHookCount> cudart_hooks() { return kSymbols; }

bool is_cudart_name(const char* name) {
  return std::strncmp(name, "cuda", 4) == 0 && name[4] >= 'A' && name[4] <= 'Z';
}

std::optional<CudartHookId> find_cudart_symbol(const char* symbol) {
  for (int id = 0; id < kCudartHookCount; ++id)
    if (std::strcmp(kSymbols[id], symbol) == 0) return static_cast<CudartHookId>(id);
  return std::nullopt;
}

}  // namespace braid::lending
