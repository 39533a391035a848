#include "stress/calls.h"

#include <dlfcn.h>

#include <algorithm>

namespace braid::stress {
namespace {

template <typename Function>
void find(void* driver, const std::string& symbol, Function& function) {
  function = reinterpret_cast<Function>(dlsym(driver, symbol.c_str()));
  if (function == nullptr) throw std::runtime_error("the driver has no " + symbol);
}

}  // namespace

Calls open_calls() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) throw std::runtime_error(dlerror());
  Calls calls{};
#define STRESS_FIND(member, symbol) find(driver, #symbol, calls.member);
  STRESS_CALLS(STRESS_FIND)
#undef STRESS_FIND
#define STRESS_FIND(member, type, symbol, suffix) \
  find(driver, symbol, calls.member.of[0]);       \
  find(driver, std::string(symbol) + suffix, calls.member.of[1]);
  STRESS_COPY_CALLS(STRESS_FIND)
#undef STRESS_FIND
  calls.is_emulated = dlsym(driver, "braidClockNow") != nullptr;
  return calls;
}

Machine machine_of(const Calls& calls) {
  must(calls.init(0), "cuInit");
  int gpus = 0;
  must(calls.get_count(&gpus), "counting the GPUs");
  if (gpus < 2) throw std::runtime_error("needs two GPUs");
  return {.gpus = std::min(gpus, Machine{}.gpus), .refuses_what_is_undefined = calls.is_emulated};
}

}  // namespace braid::stress
