// Initialisation, versions, errors, and finding entry points by name.
#include <cstdint>
#include <cstring>
#include <string>

#include "emulator/api/entry.h"
#include "emulator/constants.h"
#include "emulator/errors.h"
#include "emulator/symbols/symbols.h"

using namespace braid::emulator;

extern "C" CUresult CUDAAPI cuInit(unsigned int flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return init_process();
}

// cuda-gdb writes its session here when it sees the driver being loaded, before any call.
extern "C" {
uint32_t cudbgSessionId = 0;
}

extern "C" CUresult CUDAAPI cuDriverGetVersion(int* version) {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = kDriverVersion;
  return CUDA_SUCCESS;
}

extern "C" CUresult CUDAAPI cuGetErrorName(CUresult error, const char** text) {
  if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *text = error_name(error);
  return *text != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

extern "C" CUresult CUDAAPI cuGetErrorString(CUresult error, const char** text) {
  if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *text = error_words(error);
  return *text != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

extern "C" CUresult CUDAAPI cuGetProcAddress_v2(const char* symbol, void** function, int version,
                                                cuuint64_t flags,
                                                CUdriverProcAddressQueryResult* status) {
  constexpr cuuint64_t kKnownFlags =
      CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  if (symbol == nullptr || function == nullptr || (flags & ~kKnownFlags) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  const bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
  const SymbolQuery query = find_symbol(symbol, version, per_thread);
  *function = query.function;
  if (status != nullptr)
    *status = query.function != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS
              : query.too_old           ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                        : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return query.function != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

extern "C" CUresult CUDAAPI cuGetProcAddress(const char* symbol, void** function, int version,
                                             cuuint64_t flags) {
  return cuGetProcAddress_v2(symbol, function, version, flags, nullptr);
}

// Declared in cudaProfiler.h. There is no profiler to start.
extern "C" CUresult cuProfilerStart() { return CUDA_SUCCESS; }
extern "C" CUresult cuProfilerStop() { return CUDA_SUCCESS; }
