#include "faults/faulty_driver.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <mutex>
#include <tuple>

namespace braid::faults {
namespace {

enum Function : size_t {
#define FAULTS_NUMBER(name) k_##name,
  BRAID_DRIVER_FUNCTIONS(FAULTS_NUMBER)
#undef FAULTS_NUMBER
      k_copy_batch,
  kFunctions
};

constexpr std::array<const char*, kFunctions> kNames = {
#define FAULTS_NAME(name) #name,
    BRAID_DRIVER_FUNCTIONS(FAULTS_NAME)
#undef FAULTS_NAME
        "copy_batch"};

/// Something that braid has made, by what it is and the driver's name for it.
struct Owned {
  const char* what;
  uint64_t handle;
  bool operator<(const Owned& other) const {
    return std::tuple(std::string(what), handle) <
           std::tuple(std::string(other.what), other.handle);
  }
};

struct State {
  cuda::Driver real;
  std::mutex lock;
  std::array<int, kFunctions> calls{};
  size_t refused_function = kFunctions;
  int refused_nth = 0;
  bool stays_refused = false;
  bool was_refused = false;
  std::string misuse;
  std::map<Owned, std::vector<CUcontext>> owned;  // once for each time it was made, and where
};

State& state() {
  static State& instance = *new State;  // owner: the process: threads of braid's may outlive main
  return instance;
}

// ---- The ledger ----

template <typename Handle>
uint64_t number(Handle handle) {
  if constexpr (std::is_pointer_v<Handle>)
    return reinterpret_cast<uint64_t>(handle);
  else
    return static_cast<uint64_t>(handle);
}

void made(const char* what, uint64_t handle) {
  CUcontext context = nullptr;
  state().real.cuCtxGetCurrent(&context);
  const std::lock_guard hold(state().lock);
  state().owned[{what, handle}].push_back(context);
}

// Before the call: a driver may crash over a handle that is nothing any more.
void about_to_give_back(const char* what, uint64_t handle) {
  const std::lock_guard hold(state().lock);
  if (!state().owned.contains({what, handle}))
    state().misuse = std::string("gives back what it does not own: ") + what;
}

void given_back(const char* what, uint64_t handle) {
  const std::lock_guard hold(state().lock);
  const auto found = state().owned.find({what, handle});
  if (found == state().owned.end()) return;
  found->second.pop_back();
  if (found->second.empty()) state().owned.erase(found);
}

template <size_t function>
struct Ledger {
  template <typename... Arguments>
  static void begins(Arguments...) {}
  template <typename... Arguments>
  static void succeeded(Arguments...) {}
};

// (function, what, its parameters, the handle among them)
#define FAULTS_MAKES(function, what, parameters, handle)             \
  template <>                                                        \
  struct Ledger<k_##function> {                                      \
    template <typename... Arguments>                                 \
    static void begins(Arguments...) {}                              \
    static void succeeded parameters { made(what, number(handle)); } \
  };
#define FAULTS_GIVES_BACK(function, what, parameters, handle)                   \
  template <>                                                                   \
  struct Ledger<k_##function> {                                                 \
    static void begins parameters { about_to_give_back(what, number(handle)); } \
    static void succeeded parameters { given_back(what, number(handle)); }      \
  };
FAULTS_MAKES(cuStreamCreate, "stream", (CUstream * out, unsigned), *out)
FAULTS_MAKES(cuStreamCreateWithPriority, "stream", (CUstream * out, unsigned, int), *out)
FAULTS_GIVES_BACK(cuStreamDestroy, "stream", (CUstream stream), stream)
FAULTS_MAKES(cuEventCreate, "event", (CUevent * out, unsigned), *out)
FAULTS_GIVES_BACK(cuEventDestroy, "event", (CUevent event), event)
FAULTS_MAKES(cuMemAlloc, "device allocation", (CUdeviceptr * out, size_t), *out)
FAULTS_GIVES_BACK(cuMemFree, "device allocation", (CUdeviceptr address), address)
FAULTS_MAKES(cuMemHostAlloc, "host allocation", (void** out, size_t, unsigned), *out)
FAULTS_GIVES_BACK(cuMemFreeHost, "host allocation", (void* memory), memory)
FAULTS_MAKES(cuMemHostRegister, "registration", (void* memory, size_t, unsigned), memory)
FAULTS_GIVES_BACK(cuMemHostUnregister, "registration", (void* memory), memory)
FAULTS_MAKES(cuModuleLoadData, "module", (CUmodule * out, const void*), *out)
FAULTS_GIVES_BACK(cuModuleUnload, "module", (CUmodule module), module)
FAULTS_MAKES(cuDevicePrimaryCtxRetain, "hold on a primary context", (CUcontext*, CUdevice device),
             device)
FAULTS_GIVES_BACK(cuDevicePrimaryCtxRelease, "hold on a primary context", (CUdevice device), device)
#undef FAULTS_GIVES_BACK
#undef FAULTS_MAKES

// ---- The functions ----

bool is_refused(size_t function) {
  State& all = state();
  const std::lock_guard hold(all.lock);
  const int nth = ++all.calls[function];
  const bool refused = function == all.refused_function &&
                       (nth == all.refused_nth || (all.stays_refused && nth > all.refused_nth));
  all.was_refused = all.was_refused || refused;
  return refused;
}

template <size_t function, typename Type>
struct Wrapped;

template <size_t function, typename... Arguments>
struct Wrapped<function, CUresult (*)(Arguments...)> {
  static inline CUresult (*real)(Arguments...) = nullptr;

  static CUresult call(Arguments... arguments) {
    Ledger<function>::begins(arguments...);
    if (is_refused(function)) return refusal_of(kNames[function]);
    const CUresult result = real(arguments...);
    if (result == CUDA_SUCCESS) Ledger<function>::succeeded(arguments...);
    return result;
  }
};

template <size_t function, typename Type>
void wrap_one(Type& entry) {
  if (entry == nullptr) return;
  Wrapped<function, Type>::real = entry;
  entry = &Wrapped<function, Type>::call;
}

}  // namespace

std::string describe(const Fault& fault) {
  if (fault.nth == 0) return "no fault";
  return fault.name + ":" + std::to_string(fault.nth) + (fault.stays ? "+" : "");
}

bool parse_fault(const std::string& text, Fault& fault) {
  const size_t colon = text.find(':');
  if (colon == std::string::npos) return false;
  fault = {text.substr(0, colon), std::atoi(text.c_str() + colon + 1), text.ends_with('+')};
  return fault.nth > 0 && std::find(kNames.begin(), kNames.end(), fault.name) != kNames.end();
}

CUresult refusal_of(const std::string& name) {
  static const std::map<std::string, CUresult> realistic = {
      {"cuMemAlloc", CUDA_ERROR_OUT_OF_MEMORY},
      {"cuMemHostAlloc", CUDA_ERROR_OUT_OF_MEMORY},
      {"cuMemHostRegister", CUDA_ERROR_OUT_OF_MEMORY},
      {"cuModuleLoadData", CUDA_ERROR_OUT_OF_MEMORY},
      {"cuDevicePrimaryCtxRetain", CUDA_ERROR_OUT_OF_MEMORY},
      {"cuStreamCreateWithPriority", CUDA_ERROR_OUT_OF_MEMORY},
      {"cuEventCreate", CUDA_ERROR_OUT_OF_MEMORY},
      {"cuEventRecord", CUDA_ERROR_OUT_OF_MEMORY},
      {"cuMemcpyHtoDAsync", CUDA_ERROR_OUT_OF_MEMORY},
      {"cuMemcpyDtoHAsync", CUDA_ERROR_OUT_OF_MEMORY},
      {"cuMemcpyPeerAsync", CUDA_ERROR_PEER_ACCESS_NOT_ENABLED},
      {"cuCtxEnablePeerAccess", CUDA_ERROR_TOO_MANY_PEERS},
      {"cuLaunchKernel", CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES},
      {"cuStreamWaitValue32", CUDA_ERROR_NOT_SUPPORTED},
      {"cuStreamWriteValue32", CUDA_ERROR_NOT_SUPPORTED},
      {"cuMemSetAccess", CUDA_ERROR_NOT_SUPPORTED},
      {"cuMemPoolSetAccess", CUDA_ERROR_NOT_SUPPORTED},
      {"cuPointerGetAttributes", CUDA_ERROR_INVALID_VALUE},
  };
  const auto found = realistic.find(name);
  return found != realistic.end() ? found->second : CUDA_ERROR_UNKNOWN;
}

bool gives_back(const std::string& name) {
  for (const char* one : {"cuStreamDestroy", "cuEventDestroy", "cuMemFree", "cuMemFreeHost",
                          "cuMemHostUnregister", "cuModuleUnload", "cuDevicePrimaryCtxRelease"})
    if (name == one) return true;
  return false;
}

cuda::Driver wrap(const cuda::Driver& real, const Fault& fault) {
  State& all = state();
  all.real = real;
  all.refused_nth = fault.nth;
  all.stays_refused = fault.stays;
  all.refused_function =
      static_cast<size_t>(std::find(kNames.begin(), kNames.end(), fault.name) - kNames.begin());
  cuda::Driver wrapped = real;
#define FAULTS_WRAP(name) wrap_one<k_##name>(wrapped.name);
  BRAID_DRIVER_FUNCTIONS(FAULTS_WRAP)
  FAULTS_WRAP(copy_batch)
#undef FAULTS_WRAP
  return wrapped;
}

std::string misuse() {
  const std::lock_guard hold(state().lock);
  return state().misuse;
}

const cuda::Driver& real_driver() { return state().real; }

std::map<std::string, int> calls_made() {
  const std::lock_guard hold(state().lock);
  std::map<std::string, int> calls;
  for (size_t function = 0; function < kFunctions; ++function)
    if (const int made = state().calls[function]; made != 0) calls[kNames[function]] = made;
  return calls;
}

bool was_refused() {
  const std::lock_guard hold(state().lock);
  return state().was_refused;
}

std::vector<std::string> still_owned() {
  const std::lock_guard hold(state().lock);
  std::vector<std::string> names;
  for (const auto& [thing, contexts] : state().owned)
    for (size_t i = 0; i < contexts.size(); ++i) names.emplace_back(thing.what);
  return names;
}

void context_ended(CUcontext context, CUdevice device, bool is_primary) {
  const std::lock_guard hold(state().lock);
  for (auto& [thing, contexts] : state().owned) {
    if (std::string(thing.what) != "hold on a primary context")
      std::erase(contexts, context);
    else if (is_primary && thing.handle == static_cast<uint64_t>(device))
      contexts.clear();
  }
  std::erase_if(state().owned, [](const auto& entry) { return entry.second.empty(); });
}

}  // namespace braid::faults
