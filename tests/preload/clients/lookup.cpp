#include "lookup.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <functional>

// The symbol that programs built against glibc before 2.34 ask for.
extern "C" void* dlsym_old(void* handle, const char* name);
asm(".symver dlsym_old, dlsym@GLIBC_2.2.5");

#ifdef CLIENT_LINKS_DRIVER
// Declared without types: the loader only needs the names.
// clang-format off
#define LINKED_SYMBOLS(X)                                                                          \
  X(cuInit) X(cuDeviceGet) X(cuDevicePrimaryCtxRetain) X(cuCtxSetCurrent) X(cuCtxSynchronize)      \
  X(cuMemAlloc_v2) X(cuMemHostAlloc) X(cuStreamCreate) X(cuStreamSynchronize)                      \
  X(cuMemcpyHtoD_v2) X(cuMemcpyHtoD_v2_ptds) X(cuMemcpyDtoH_v2) X(cuMemcpyDtoH_v2_ptds)            \
  X(cuMemcpyHtoDAsync_v2) X(cuMemcpyHtoDAsync_v2_ptsz) X(cuMemcpyDtoHAsync_v2)                     \
  X(cuMemcpyDtoHAsync_v2_ptsz) X(cuMemcpy) X(cuMemcpy_ptds) X(cuMemcpyAsync) X(cuMemcpyAsync_ptsz) \
  X(cuDeviceGetCount) X(cuDeviceGetName) X(cuDeviceGetUuid_v2) X(cuDeviceTotalMem_v2)              \
  X(cuDeviceGetAttribute) X(cuDeviceGetProperties) X(cuDeviceComputeCapability)                    \
  X(cuDeviceGetPCIBusId) X(cuDeviceGetByPCIBusId) X(cuDeviceCanAccessPeer)                         \
  X(cuDeviceGetP2PAttribute) X(cuDevicePrimaryCtxGetState) X(cuDevicePrimaryCtxSetFlags_v2)        \
  X(cuDevicePrimaryCtxRelease_v2) X(cuDevicePrimaryCtxReset_v2) X(cuCtxCreate_v2)                 \
  X(cuDevicePrimaryCtxRelease) X(cuCtxAttach) X(cuCtxDetach)
// clang-format on
namespace linked {
#define DECLARE(symbol) extern "C" void symbol##_alias() __asm__(#symbol);
LINKED_SYMBOLS(DECLARE)
}  // namespace linked
#endif

namespace client {
namespace {

std::function<void*(const std::string&)> lookup;

bool ends_with(const std::string& text, const std::string& end) { return text.ends_with(end); }

// "cuMemcpyHtoD_v2_ptds" -> "cuMemcpyHtoD", as cuGetProcAddress is asked.
std::string base_name(std::string symbol) {
  for (const char* suffix : {"_ptds", "_ptsz", "_v2"})
    if (ends_with(symbol, suffix)) symbol.resize(symbol.size() - std::string(suffix).size());
  return symbol;
}

cuuint64_t flags_for(const std::string& symbol) {
  const bool per_thread = ends_with(symbol, "_ptds") || ends_with(symbol, "_ptsz");
  return per_thread ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM : CU_GET_PROC_ADDRESS_DEFAULT;
}

using ResolverV1 = CUresult(const char*, void**, int, cuuint64_t);
using ResolverV2 = CUresult(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);

void* resolve_v1(ResolverV1* resolver, const std::string& symbol) {
  void* function = nullptr;
  resolver(base_name(symbol).c_str(), &function, 11030, flags_for(symbol));
  return function;
}

void* resolve_v2(ResolverV2* resolver, const std::string& symbol) {
  void* function = nullptr;
  CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  const CUresult result =
      resolver(base_name(symbol).c_str(), &function, 12000, flags_for(symbol), &status);
  const bool found = result == CUDA_SUCCESS && status == CU_GET_PROC_ADDRESS_SUCCESS;
  return found ? function : nullptr;
}

#ifdef CLIENT_LINKS_DRIVER
void* find_linked(const std::string& symbol) {
#define COMPARE(name) \
  if (symbol == #name) return reinterpret_cast<void*>(&linked::name##_alias);
  LINKED_SYMBOLS(COMPARE)
  return nullptr;
}
#endif

}  // namespace

bool use_lookup(const std::string& way) {
#ifdef CLIENT_LINKS_DRIVER
  if (way != "linked") return false;
  lookup = find_linked;
  return true;
#endif
  void* handle = dlopen("libcuda.so.1", RTLD_NOW | (way == "default" ? RTLD_GLOBAL : RTLD_LOCAL));
  if (handle == nullptr) return false;
  auto* v1 = reinterpret_cast<ResolverV1*>(dlsym(handle, "cuGetProcAddress"));
  auto* v2 = reinterpret_cast<ResolverV2*>(dlsym(handle, "cuGetProcAddress_v2"));
  if (way == "dlsym")
    lookup = [=](const std::string& symbol) { return dlsym(handle, symbol.c_str()); };
  else if (way == "dlsym_old")
    lookup = [=](const std::string& symbol) { return dlsym_old(handle, symbol.c_str()); };
  else if (way == "default")
    lookup = [=](const std::string& symbol) { return dlsym(RTLD_DEFAULT, symbol.c_str()); };
  else if (way == "proc")
    lookup = [=](const std::string& symbol) { return resolve_v2(v2, symbol); };
  else if (way == "proc_v1")
    lookup = [=](const std::string& symbol) { return resolve_v1(v1, symbol); };
  else if (way == "proc_nested")
    lookup = [nested = reinterpret_cast<ResolverV2*>(resolve_v2(v2, "cuGetProcAddress"))](
                 const std::string& symbol) { return resolve_v2(nested, symbol); };
  return static_cast<bool>(lookup);
}

void* find(const std::string& symbol) {
  void* function = lookup(symbol);
  if (function != nullptr) return function;
  std::fprintf(stderr, "client: no %s\n", symbol.c_str());
  std::exit(3);
}

}  // namespace client
