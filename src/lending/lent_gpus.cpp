// CUDA_VISIBLE_DEVICES is wider only while the driver reads it, inside cuInit. The program reads,
// and its children inherit, the value that the user or the launcher has set.
#include "lending/lent_gpus.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <string_view>

#include "lending/cudart_start.h"
#include "lending/visible_devices.h"
#include "loader/module.h"

namespace braid::lending {
namespace {

struct State {
  std::mutex starting;                  // no other thread may see half a start
  std::atomic<bool> is_decided{false};  // cuInit has succeeded once
  std::atomic<int> own_count{INT_MAX};  // GPUs from this number on are lent
  std::atomic<int> all_count{INT_MAX};  // and end before this one
  std::atomic<bool> is_starting{false};
  std::atomic<char*> own_entry{nullptr};  // of `environ`: what the program's children inherit
};

constinit State state;

using Say = decltype(DriverStart::say);

std::optional<WidenedDevices> devices_to_show(Say say) try {
  const char* const lendable = std::getenv(kLendVariable);
  const char* const visible = std::getenv(kVisibleVariable);
  if (lendable == nullptr || visible == nullptr) return std::nullopt;
  const auto gpus = parse_lendable(lendable);
  if (gpus.ok()) return widen(visible, gpus.value());
  say((gpus.status().message() + ". No GPU is lent").c_str());
  return std::nullopt;
} catch (...) {
  return std::nullopt;
}

// A copy of the runtime that cannot be hooked would show the program every GPU.
bool is_kept_from_lending(const link_map* static_cudart, Say say) {
  if (static_cudart == nullptr) return false;
  say((loader::path_of(*static_cudart) +
       " holds CUDA's runtime library statically, which would show lent GPUs to the program. "
       "No GPU is lent. Link the runtime with nvcc -cudart shared")
          .c_str());
  return true;
}

// Another thread of the program may fork meanwhile, and its child start a program. No setenv here:
// its lock may be held by a thread that the child does not have.
void restore_in_child() noexcept {
  if (!state.is_starting.load()) return;
  const std::string_view name = kVisibleVariable;
  for (char** entry = environ; *entry != nullptr; ++entry)
    if (std::string_view(*entry).starts_with(name) && (*entry)[name.size()] == '=')
      *entry = state.own_entry.load();
  state.is_starting.store(false);
}

// The one that children of an earlier start may have stays.
void keep_own_entry(const std::string& own) {
  const std::string entry = std::string(kVisibleVariable) + "=" + own;
  if (const char* kept = state.own_entry.load(); kept != nullptr && entry == kept) return;
  char* const text = strdup(entry.c_str());  // owner: the environment of children, for ever
  if (text == nullptr) throw std::bad_alloc();
  state.own_entry.store(text);
}

// The variable exists already, so its entry in `environ` is replaced in one store.
CUresult start_with(const DriverStart& driver, unsigned flags, const WidenedDevices& devices) {
  const std::string own = std::getenv(kVisibleVariable);
  static const int watched = pthread_atfork(nullptr, nullptr, restore_in_child);
  (void)watched;
  keep_own_entry(own);
  state.is_starting.store(true);
  setenv(kVisibleVariable, devices.visible.c_str(), 1);
  const CUresult result = driver.init(flags);
  setenv(kVisibleVariable, own.c_str(), 1);
  state.is_starting.store(false);
  if (result != CUDA_SUCCESS) return driver.init(flags);  // the answer without lending
  // The driver's list ends at the first entry that names no GPU, which may be one of the program's
  // entries.
  int count = 0;
  if (driver.count_gpus == nullptr || driver.count_gpus(&count) != CUDA_SUCCESS) count = 0;
  state.own_count.store(std::min(devices.own_count, count));
  state.all_count.store(count);
  return result;
}

CUresult start_once(const DriverStart& driver, unsigned flags, const link_map* static_cudart) {
  const std::lock_guard hold(state.starting);
  if (is_lending_decided()) return driver.init(flags);
  auto devices = devices_to_show(driver.say);
  if (devices && is_kept_from_lending(static_cudart, driver.say)) devices.reset();
  const CUresult result = devices ? start_with(driver, flags, *devices) : driver.init(flags);
  state.is_decided.store(result == CUDA_SUCCESS);
  return result;
}

}  // namespace

bool may_lend() noexcept {
  static const bool is_asked = std::getenv(kLendVariable) != nullptr;
  return is_asked;
}

bool is_lending_decided() noexcept { return state.is_decided.load(); }

int own_gpus() noexcept { return state.own_count.load(std::memory_order_relaxed); }

bool is_lent(int gpu) noexcept {
  return gpu >= own_gpus() && gpu < state.all_count.load(std::memory_order_relaxed);
}

int hide_lent(int gpu) noexcept {
  return is_lent(gpu) ? state.all_count.load(std::memory_order_relaxed) : gpu;
}

CUresult start_driver(const DriverStart& driver, unsigned flags, const void* caller) noexcept try {
  if (is_lending_decided() || !may_lend()) return driver.init(flags);
  const link_map* const static_cudart = static_cudart_at(caller);  // before any lock is held
  return start_once(driver, flags, static_cudart);
} catch (...) {
  return CUDA_ERROR_OUT_OF_MEMORY;
}

}  // namespace braid::lending
