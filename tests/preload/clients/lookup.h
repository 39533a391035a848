// The ways in which programs find driver functions. A client is written once and run with each.
#pragma once

#include <cuda.h>

#include <string>

namespace client {

/// Chooses the way: "dlsym" (on a handle), "dlsym_old" (the first version of the symbol), "default"
/// (RTLD_DEFAULT, with the driver in the global scope), "proc" (cuGetProcAddress_v2), "proc_v1"
/// (its first version), "proc_nested" (the resolver asked of the resolver), "linked" (the loader;
/// only in the client that links the driver). False when it cannot be had.
bool use_lookup(const std::string& way);

/// The function of a driver symbol: "cuMemcpyHtoD_v2_ptds". Ends the process when there is none.
void* find(const std::string& symbol);

template <typename Function>
Function* get(const std::string& symbol) {
  return reinterpret_cast<Function*>(find(symbol));
}

}  // namespace client
