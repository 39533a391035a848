#include "preload/binding.h"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <utility>

#include "base/options.h"
#include "cuda/driver.h"
#include "cuda/tools.h"
#include "loader/libc_dlsym.h"
#include "preload/messages.h"
#include "preload/observe.h"
#include "preload/state.h"

namespace braid::preload {
namespace {

using loader::libc_dlsym;

constinit std::atomic<bool> is_bound{false};
constinit std::atomic<bool> is_prepared{false};  // handlers registered

// Memory may come from another library that stands in for the driver: it is asked, as it would be
// without braid.
void* find_real(const Hook& hook, void* library) {
  void* next = hook.kind == HookKind::kMemory ? libc_dlsym(RTLD_NEXT, hook.symbol) : nullptr;
  return next != nullptr ? next : libc_dlsym(library, hook.symbol);
}

void read_environment() {
  auto read = read_options([](const char* name) -> const char* { return std::getenv(name); });
  if (!read.ok()) give_engine_up(read.status().message().c_str());
  set_options(read.ok() ? std::move(read).value() : Options{});
}

void load_driver(void* library) {
  if (driver() != nullptr) return;
  auto loaded = cuda::load_driver([&](const char* name) { return libc_dlsym(library, name); });
  if (loaded.ok())
    set_driver(std::move(loaded).value());
  else
    give_engine_up(loaded.status().message().c_str());
}

// The engine would stay native too, but only after it has asked the driver for this and that.
void stay_out_under_tools() {
  if (driver() == nullptr) return;
  const std::string reason = cuda::reason_to_stay_native(*driver());
  if (!reason.empty()) give_engine_up(reason.c_str());
}

void start_child() noexcept {
  become_child();
  forget_reports();
}

size_t collect(int wait_ms, multipath::PathCounts& paths,
               std::span<multipath::RelayCount> relays) noexcept {
  multipath::Engine* open = engine();
  if (open == nullptr) return 0;
  open->collect(wait_ms, paths);
  return open->count_relays(relays);
}

void prepare_process() {
  if (is_prepared.exchange(true)) return;
  pthread_atfork(nullptr, nullptr, start_child);
  const Status reporting = start_reporting(options(), statistics_source());
  if (!reporting.ok()) say_once(reporting.message().c_str());
  start_observing(options());
}

}  // namespace

StatisticsSource statistics_source() noexcept {
  return {[]() noexcept -> const Statistics& { return statistics(); }, collect};
}

// Threads that race here do the same work twice and store the same values: a lock could deadlock
// with the loader's, which a library's constructor holds while it calls CUDA.
bool bind() noexcept try {
  if (is_bound.load(std::memory_order_acquire)) return true;
  void* library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return false;
  for (int hook = 0; hook < kHookCount; ++hook)
    if (void* symbol = find_real(hooks()[static_cast<size_t>(hook)], library))
      driver_function(static_cast<HookId>(hook)).store(symbol, std::memory_order_release);
  read_environment();
  load_driver(library);
  stay_out_under_tools();
  prepare_process();
  is_bound.store(true, std::memory_order_release);
  return true;
} catch (...) {
  return false;
}

void* real_function(HookId hook) noexcept {
  void* function = driver_function(hook).load(std::memory_order_acquire);
  if (function != nullptr || !bind()) return function;
  return driver_function(hook).load(std::memory_order_acquire);
}

}  // namespace braid::preload
