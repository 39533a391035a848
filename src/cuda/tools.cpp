#include "cuda/tools.h"

#include <cstdlib>

namespace braid::cuda {
namespace {

// A debugger writes the number of its session into the driver when it sees the library being
// loaded.
bool is_debugged(const Driver& driver) {
  return driver.debugger_session != nullptr && *driver.debugger_session != 0;
}

bool is_set(const char* name) { return std::getenv(name) != nullptr; }

}  // namespace

std::string reason_to_stay_native(const Driver& driver) {
  // Of a context's memory, initcheck knows what that context's own work wrote.
  if (is_set("NV_SANITIZER_INJECTION_PORT_BASE"))
    return "compute-sanitizer would report bytes that other GPUs have carried as uninitialized";
  // It lets no kernel run beside another, and repeats them.
  if (is_set("NV_COMPUTE_PROFILER_PERFWORKS_DIR"))
    return "Nsight Compute runs kernels one by one, and braid's work together";
  // A context that was made beside the program's waiting copies hung under it.
  if (is_debugged(driver)) return "under cuda-gdb a program can hang while braid opens other GPUs";
  return {};
}

}  // namespace braid::cuda
