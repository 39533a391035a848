#include "preload/state.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "multipath/cost_model.h"
#include "multipath/planner.h"
#include "multipath/staging/stager.h"
#include "preload/messages.h"

namespace braid::preload {
namespace {

struct Process {
  std::array<std::atomic<void*>, kHookCount> driver_functions{};
  std::atomic<const cuda::Driver*> driver{nullptr};
  std::atomic<const Options*> options{nullptr};
  std::atomic<uint64_t> threshold_bytes{UINT64_MAX};
  std::atomic<uint64_t> staging_bytes{UINT64_MAX};
  std::atomic<State> state{State::kIdle};
  std::atomic<multipath::Engine*> engine{nullptr};
  Statistics statistics;
};

constinit Process process;

template <typename T>
void publish(std::atomic<const T*>& place, std::unique_ptr<const T> object) {
  const T* expected = nullptr;
  if (place.compare_exchange_strong(expected, object.get())) (void)object.release();
}

// Until the engine is open nothing is accelerated: this decides which copies are counted as small.
uint64_t threshold_before_opening(const Options& options) {
  return multipath::Planner(multipath::default_costs(), options).threshold_bytes();
}

}  // namespace

thread_local bool ReentryGuard::inside_ = false;

State state() noexcept { return process.state.load(std::memory_order_acquire); }

const cuda::Driver* driver() noexcept { return process.driver.load(std::memory_order_acquire); }

multipath::Engine* engine() noexcept { return process.engine.load(std::memory_order_acquire); }

const Options& options() noexcept { return *process.options.load(std::memory_order_acquire); }

uint64_t threshold_bytes() noexcept {
  return process.threshold_bytes.load(std::memory_order_relaxed);
}

uint64_t least_bytes() noexcept { return std::min(threshold_bytes(), staging_bytes()); }

uint64_t staging_bytes() noexcept { return process.staging_bytes.load(std::memory_order_relaxed); }

Statistics& statistics() noexcept { return process.statistics; }

std::atomic<void*>& driver_function(HookId hook) noexcept {
  return process.driver_functions[static_cast<size_t>(hook)];
}

void set_driver(cuda::Driver driver) {
  publish(process.driver, std::make_unique<const cuda::Driver>(std::move(driver)));
}

void set_options(Options options) {
  process.threshold_bytes.store(threshold_before_opening(options), std::memory_order_relaxed);
  process.staging_bytes.store(multipath::staging::Stager::least_bytes(options));
  publish(process.options, std::make_unique<const Options>(std::move(options)));
}

bool begin_creating() noexcept {
  State expected = State::kIdle;
  return process.state.compare_exchange_strong(expected, State::kCreating);
}

void set_engine(std::unique_ptr<multipath::Engine> engine) noexcept {
  process.threshold_bytes.store(engine->threshold_bytes(), std::memory_order_relaxed);
  process.engine.store(engine.release(), std::memory_order_release);
  process.state.store(State::kOpen, std::memory_order_release);
  process.state.notify_all();
}

void wait_while_creating() noexcept { process.state.wait(State::kCreating); }

// Not freed: threads of the program may be asking it.
void give_engine_up(const char* why) noexcept {
  process.engine.store(nullptr);
  process.state.store(State::kFailed);
  process.state.notify_all();
  try {
    say_once((std::string(why) + ". Every copy stays native").c_str());
  } catch (...) {
    say_once("out of memory. Every copy stays native");
  }
}

void become_child() noexcept {
  process.statistics.clear();
  process.engine.store(nullptr);
  if (process.state.load() != State::kIdle) process.state.store(State::kForked);
}

}  // namespace braid::preload
