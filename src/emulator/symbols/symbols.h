// Every entry point of cuda.h by name, for cuGetProcAddress. Constant after loading.
#pragma once

#include <string>

namespace braid::emulator {

struct SymbolQuery {
  void* function = nullptr;  ///< null: not found
  bool too_old = false;      ///< not found because the name came with a later CUDA
};

/// "cuMemAlloc" as of CUDA `version` (12080: 12.8): the newest form up to that version. With
/// `per_thread`, the form whose NULL stream is the thread's own, if there is one.
SymbolQuery find_symbol(const std::string& name, int version, bool per_thread);

}  // namespace braid::emulator
