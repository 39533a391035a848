#include "preload/runtime.h"

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "base/options.h"
#include "multipath/cost_model.h"
#include "multipath/planner.h"
#include "multipath/staging/stager.h"
#include "preload/descriptor.h"
#include "preload/dlsym.h"
#include "preload/entries.h"
#include "preload/observe.h"
#include "preload/primaries.h"
#include "preload/reporter.h"

namespace braid::preload {
namespace {

// Beyond so many different ones, messages are no longer said.
constexpr size_t kMostMessages = 64;

// One per process. The engine, the driver table and the options are never freed: threads of the
// program may still be copying while it exits.
struct Process {
  std::array<std::atomic<void*>, kHookCount> real{};
  std::atomic<bool> is_bound{false};
  std::atomic<bool> is_prepared{false};  // handlers registered
  std::atomic<const cuda::Driver*> driver{nullptr};
  std::atomic<const Options*> options{nullptr};
  std::atomic<uint64_t> threshold_bytes{UINT64_MAX};
  std::atomic<uint64_t> staging_bytes{UINT64_MAX};
  std::atomic<State> state{State::kIdle};
  std::atomic<multipath::Engine*> engine{nullptr};
  std::array<std::atomic<uint64_t>, kMostMessages> said{};  // hashes of what has been said
  Statistics statistics;
};

constinit Process process;

// CUDA does not survive fork, and neither do the engine's streams. A child of a process that had
// not come that far may still start CUDA, and braid, for itself.
void become_child() noexcept {
  process.statistics.clear();
  forget_reports();
  process.engine.store(nullptr);
  if (process.state.load() != State::kIdle) process.state.store(State::kForked);
}

// The first of the threads that race keeps its object, for the life of the process.
template <typename T>
void publish(std::atomic<const T*>& place, std::unique_ptr<const T> object) {
  const T* expected = nullptr;
  if (place.compare_exchange_strong(expected, object.get())) (void)object.release();
}

// Until the engine is open nothing is accelerated: this decides which copies are counted as small.
uint64_t threshold_before_opening(const Options& options) {
  return multipath::Planner(multipath::default_costs(), options).threshold_bytes();
}

// Memory may come from another library that stands in for the driver: it is asked, as it would be
// without braid.
void* find_real(const Hook& hook, void* library) {
  void* next = hook.kind == HookKind::kMemory ? libc_dlsym(RTLD_NEXT, hook.symbol) : nullptr;
  return next != nullptr ? next : libc_dlsym(library, hook.symbol);
}

// Of a context's memory, initcheck knows what that context's own work wrote: it would call every
// byte that came through another GPU uninitialized. Who runs a sanitizer looks for mistakes, not
// for speed.
bool is_under_sanitizer() { return std::getenv("NV_SANITIZER_INJECTION_PORT_BASE") != nullptr; }

void store_options() {
  if (process.options.load() != nullptr) return;
  if (is_under_sanitizer()) {
    process.state.store(State::kFailed);
    say_once(
        "compute-sanitizer would report bytes that other GPUs have carried as uninitialized. Every "
        "copy stays native");
  }
  auto read = read_options([](const char* name) -> const char* { return std::getenv(name); });
  if (!read.ok()) {
    process.state.store(State::kFailed);
    say_once((read.status().message() + ". Every copy stays native").c_str());
  }
  const Options options = read.ok() ? std::move(read).value() : Options{};
  process.threshold_bytes.store(threshold_before_opening(options), std::memory_order_relaxed);
  process.staging_bytes.store(multipath::staging::Stager::least_bytes(options));
  publish(process.options, std::make_unique<const Options>(options));
}

void store_driver(void* library) {
  if (process.driver.load() != nullptr) return;
  auto loaded = cuda::load_driver([&](const char* name) { return libc_dlsym(library, name); });
  if (!loaded.ok()) {
    process.state.store(State::kFailed);
    say_once((loaded.status().message() + ". Every copy stays native").c_str());
    return;
  }
  publish(process.driver, std::make_unique<const cuda::Driver>(std::move(loaded).value()));
}

void prepare_process() {
  if (process.is_prepared.exchange(true)) return;
  pthread_atfork(nullptr, nullptr, become_child);
  start_reporting(*process.options.load());
  start_observing(*process.options.load());
}

}  // namespace

thread_local bool Inside::inside_ = false;

// Threads that race here do the same work twice and store the same values: a lock could deadlock
// with the loader's, which a library's constructor holds while it calls CUDA.
bool bind() noexcept try {
  if (process.is_bound.load(std::memory_order_acquire)) return true;
  void* library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return false;
  for (int hook = 0; hook < kHookCount; ++hook) {
    const auto index = static_cast<size_t>(hook);
    if (void* symbol = find_real(hooks()[index], library))
      process.real[index].store(symbol, std::memory_order_release);
  }
  store_options();
  store_driver(library);
  prepare_process();
  process.is_bound.store(true, std::memory_order_release);
  return true;
} catch (...) {
  return false;
}

void* real_function(HookId hook) noexcept {
  void* function = process.real[static_cast<size_t>(hook)].load(std::memory_order_acquire);
  if (function != nullptr || !bind()) return function;
  return process.real[static_cast<size_t>(hook)].load(std::memory_order_acquire);
}

void substitute(const char* base_name, void** function, int version, uint64_t flags) noexcept {
  if (base_name == nullptr || function == nullptr || *function == nullptr ||
      !is_driver_name(base_name) || !bind())
    return;
  std::array<void*, kHookCount> addresses{};
  for (size_t index = 0; index < addresses.size(); ++index)
    addresses[index] = process.real[index].load(std::memory_order_acquire);
  const auto hook = resolve(base_name, version, flags, *function, addresses, CUDA_VERSION);
  if (!hook) return;
  void* missing = nullptr;  // the driver hands it out but exports no symbol for it
  process.real[static_cast<size_t>(*hook)].compare_exchange_strong(missing, *function);
  *function = replacement(*hook);
}

const cuda::Driver* driver() noexcept { return process.driver.load(std::memory_order_acquire); }

State state() noexcept { return process.state.load(std::memory_order_acquire); }

multipath::Engine* engine() noexcept { return process.engine.load(std::memory_order_acquire); }

uint64_t threshold_bytes() noexcept {
  return process.threshold_bytes.load(std::memory_order_relaxed);
}

uint64_t least_bytes() noexcept { return std::min(threshold_bytes(), staging_bytes()); }

uint64_t staging_bytes() noexcept { return process.staging_bytes.load(std::memory_order_relaxed); }

const Options& options() noexcept { return *process.options.load(); }

Statistics& statistics() noexcept { return process.statistics; }

bool prepare_engine_once() noexcept try {
  State expected = State::kIdle;
  if (driver() == nullptr || process.options.load() == nullptr || state() != expected) return false;
  note_primaries();  // before braid holds any, or could seem to
  if (!process.state.compare_exchange_strong(expected, State::kPreparing)) return false;
  auto prepared = multipath::Engine::prepare(*driver(), *process.options.load(), say_once);
  if (!prepared.ok()) {
    give_engine_up(prepared.status().message().c_str());
    return false;
  }
  for (const std::string& problem : prepared.value()->problems()) say_once(problem.c_str());
  process.threshold_bytes.store(prepared.value()->threshold_bytes(), std::memory_order_relaxed);
  process.engine.store(std::move(prepared).value().release(), std::memory_order_release);
  process.state.store(State::kOpen, std::memory_order_release);
  // Registered after the driver's own handlers, so it runs before them, while copies still move.
  std::atexit(report_at_exit);
  return true;
} catch (...) {
  give_engine_up("out of memory while preparing the engine");
  return false;
}

// Not freed: threads of the program may be asking it.
void give_engine_up(const char* why) noexcept {
  process.state.store(State::kFailed);
  process.engine.store(nullptr);
  try {
    say_once((std::string(why) + ". Every copy stays native").c_str());
  } catch (...) {
    say_once("out of memory. Every copy stays native");
  }
}

namespace {

// True for the first thread that says this.
bool is_new(std::string_view message) {
  const uint64_t hash = std::hash<std::string_view>{}(message) | 1;
  for (std::atomic<uint64_t>& said : process.said) {
    uint64_t before = 0;
    if (said.compare_exchange_strong(before, hash)) return true;
    if (before == hash) return false;
  }
  return false;
}

}  // namespace

void say_once(const char* message) noexcept try {
  if (!is_new(message)) return;
  const std::string line = std::string("braid: ") + message + "\n";
  Descriptor errors{STDERR_FILENO};
  write_to_descriptor(&errors, line.data(), line.size());
} catch (...) {
}

}  // namespace braid::preload
