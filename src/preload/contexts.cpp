#include "preload/contexts.h"

#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "preload/helper.h"
#include "preload/messages.h"
#include "preload/primaries.h"
#include "preload/reporter.h"
#include "preload/state.h"

namespace braid::preload {
namespace {

// Never destroyed: threads of the program may still be here while the process exits.
struct Contexts {
  std::mutex lock;
  std::map<CUcontext, int> made;  // by the program, and not yet destroyed: how often it holds each
};

Contexts& contexts() {
  static Contexts& instance = *new Contexts;  // owner: the process, until its end
  return instance;
}

// With primary contexts held, and the contexts locked. Null: the primary contexts that are active.
void make_known(CUcontext context) {
  multipath::Engine* open = engine();
  if (open == nullptr) return;
  const Status status = open->add_context(context);
  if (!status.ok()) say_once((status.message() + ". Copies there stay native").c_str());
}

// With primary contexts held. Of threads that race, one prepares.
void prepare_engine_once() noexcept try {
  if (driver() == nullptr || state() != State::kIdle) return;
  note_primaries();  // before braid holds any, or could seem to
  if (!begin_preparing()) return;
  auto prepared = multipath::Engine::prepare(*driver(), options(), say_once);
  if (!prepared.ok()) return give_engine_up(prepared.status().message().c_str());
  for (const std::string& problem : prepared.value()->problems()) say_once(problem.c_str());
  set_engine(std::move(prepared).value());
  // Registered after the driver's own handlers, so it runs before them, while copies still move.
  std::atexit(report_at_exit);
  if (options().stats_interval_s != 0) start_helper();
} catch (...) {
  give_engine_up("out of memory while preparing the engine");
}

}  // namespace

void context_made(CUcontext context) noexcept try {
  if (is_for_driver()) return;
  const Inside inside;
  const auto primaries = hold_primaries();
  prepare_engine_once();
  Contexts& all = contexts();
  const std::lock_guard hold(all.lock);
  all.made[context] = 1;
  make_known(context);
} catch (...) {
}

void context_attached(CUcontext context) noexcept try {
  if (is_for_driver()) return;
  Contexts& all = contexts();
  const std::lock_guard hold(all.lock);
  if (const auto known = all.made.find(context); known != all.made.end()) ++known->second;
} catch (...) {
}

GivenUp give_up(CUcontext context, Holds which) noexcept try {
  Contexts& all = contexts();
  const std::lock_guard hold(all.lock);
  const auto known = all.made.find(context);
  GivenUp given{0, which == Holds::kAll};
  if (known != all.made.end()) {
    given.holds = which == Holds::kAll ? known->second : 1;
    known->second -= given.holds;
    given.is_end = known->second == 0;
    if (given.is_end) all.made.erase(known);
  }
  if (multipath::Engine* open = engine(); open != nullptr && given.is_end)
    open->forget_context(context);
  return given;
} catch (...) {
  return {};
}

void take_back(CUcontext context, GivenUp given) noexcept try {
  const auto primaries = hold_primaries();
  Contexts& all = contexts();
  const std::lock_guard hold(all.lock);
  if (given.holds > 0) all.made[context] += given.holds;
  if (given.is_end) make_known(given.holds > 0 ? context : nullptr);
} catch (...) {
}

void forget_primary_context(CUcontext context, Ending ending) noexcept try {
  const std::lock_guard hold(contexts().lock);
  multipath::Engine* open = engine();
  if (open == nullptr) return;
  if (ending == Ending::kReleased)
    open->release_context(context);
  else
    open->forget_context(context);
} catch (...) {
}

void prepare_engine() noexcept try {
  if (state() != State::kIdle && state() != State::kOpen)
    return;  // another thread prepares, or none
  const auto primaries = hold_primaries();
  prepare_engine_once();
  const std::lock_guard hold(contexts().lock);
  make_known(nullptr);
} catch (...) {
}

}  // namespace braid::preload
