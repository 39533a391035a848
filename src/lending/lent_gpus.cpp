// CUDA_VISIBLE_DEVICES is wider only while the driver reads it, inside cuInit: the program reads,
// and its children inherit, what the user or the program's launcher wrote.
#include "preload/lending.h"

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string>

#include "preload/cudart_start.h"
#include "preload/lend.h"
#include "preload/module.h"
#include "preload/runtime.h"

namespace braid::preload {
namespace {

constexpr const char* kVisibleVariable = "CUDA_VISIBLE_DEVICES";

struct Lending {
  std::mutex starting;                  // no other thread may see half a start
  std::atomic<bool> is_decided{false};  // cuInit has succeeded once
  std::atomic<int> own_count{INT_MAX};  // GPUs from this number on are lent
  std::atomic<int> all_count{INT_MAX};  // and end before this one
};

constinit Lending lending;

using Init = CUresult(unsigned flags);

std::optional<WidenedDevices> devices_to_show() try {
  const char* const lendable = std::getenv(kLendVariable);
  const char* const visible = std::getenv(kVisibleVariable);
  if (lendable == nullptr || visible == nullptr) return std::nullopt;
  const auto gpus = parse_lendable(lendable);
  if (gpus.ok()) return widen(visible, gpus.value());
  say_once((gpus.status().message() + ". No GPU is lent").c_str());
  return std::nullopt;
} catch (...) {
  return std::nullopt;
}

// A copy of the runtime that cannot be hooked would show the program every GPU.
bool is_kept_from_lending(const link_map* static_cudart) {
  if (static_cudart == nullptr) return false;
  say_once((path_of(*static_cudart) +
            " holds CUDA's runtime library statically, which would show lent GPUs to the program. "
            "No GPU is lent. Link the runtime with nvcc -cudart shared")
               .c_str());
  return true;
}

int count_devices() noexcept {
  int count = 0;
  auto* native = real<CUresult(int*)>(k_cuDeviceGetCount);
  return native != nullptr && native(&count) == CUDA_SUCCESS ? count : 0;
}

// The variable exists already, so its entry in `environ` is replaced in one store.
CUresult start_with(Init* native, unsigned flags, const WidenedDevices& devices) {
  const std::string own = std::getenv(kVisibleVariable);
  setenv(kVisibleVariable, devices.visible.c_str(), 1);
  const CUresult result = native(flags);
  setenv(kVisibleVariable, own.c_str(), 1);
  if (result != CUDA_SUCCESS) return native(flags);  // the answer without lending
  // The driver's list ends at the first entry that names no GPU: it may be one of the program's.
  const int count = count_devices();
  lending.own_count.store(std::min(devices.own_count, count));
  lending.all_count.store(count);
  return result;
}

CUresult start_once(Init* native, unsigned flags, const link_map* static_cudart) {
  const std::lock_guard hold(lending.starting);
  if (is_lending_decided()) return native(flags);
  auto devices = devices_to_show();
  if (devices && is_kept_from_lending(static_cudart)) devices.reset();
  const CUresult result = devices ? start_with(native, flags, *devices) : native(flags);
  lending.is_decided.store(result == CUDA_SUCCESS);
  return result;
}

}  // namespace

bool may_lend() noexcept {
  static const bool is_asked = std::getenv(kLendVariable) != nullptr;
  return is_asked;
}

bool is_lending_decided() noexcept { return lending.is_decided.load(); }

int own_gpus() noexcept { return lending.own_count.load(std::memory_order_relaxed); }

bool is_lent(int gpu) noexcept {
  return gpu >= own_gpus() && gpu < lending.all_count.load(std::memory_order_relaxed);
}

int hide_lent(int gpu) noexcept {
  return is_lent(gpu) ? lending.all_count.load(std::memory_order_relaxed) : gpu;
}

CUresult start_driver(Init* native, unsigned flags, const void* caller) noexcept try {
  if (is_lending_decided() || !may_lend()) return native(flags);
  const link_map* const static_cudart = static_cudart_at(caller);  // before any lock is held
  return start_once(native, flags, static_cudart);
} catch (...) {
  return CUDA_ERROR_OUT_OF_MEMORY;
}

}  // namespace braid::preload
