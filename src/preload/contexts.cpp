#include "preload/contexts.h"

#include <cstdlib>
#include <mutex>
#include <set>
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
  std::set<CUcontext> made;  // by the program, and not yet destroyed
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

// With primary contexts held. Of threads that race, one creates.
void create_engine_once() noexcept try {
  if (driver() == nullptr || state() != State::kIdle) return;
  note_primaries();  // before braid holds any, or could seem to
  if (!begin_creating()) return;
  auto created = multipath::Engine::create(*driver(), options(), say_once);
  if (!created.ok()) return give_engine_up(created.status().message().c_str());
  for (const std::string& problem : created.value()->problems()) say_once(problem.c_str());
  set_engine(std::move(created).value());
  // Registered after the driver's own handlers, so it runs before them, while copies still move.
  std::atexit(report_at_exit);
  if (options().stats_interval_s != 0) start_helper();
} catch (...) {
  give_engine_up("out of memory while creating the engine");
}

}  // namespace

void context_made(CUcontext context) noexcept try {
  if (is_for_driver()) return;
  const ReentryGuard guard;
  const auto primaries = hold_primaries();
  create_engine_once();
  Contexts& all = contexts();
  const std::lock_guard hold(all.lock);
  all.made.insert(context);
  make_known(context);
} catch (...) {
}

bool forget_context(CUcontext context, Ending ending) noexcept try {
  Contexts& all = contexts();
  const std::lock_guard hold(all.lock);
  const bool is_made = all.made.erase(context) != 0;
  if (multipath::Engine* open = engine(); open != nullptr) {
    if (ending == Ending::kReleased)
      open->release_context(context);
    else
      open->forget_context(context);
  }
  return is_made;
} catch (...) {
  return false;
}

void take_back(CUcontext context, bool is_made) noexcept try {
  const auto primaries = hold_primaries();
  Contexts& all = contexts();
  const std::lock_guard hold(all.lock);
  if (is_made) all.made.insert(context);
  make_known(is_made ? context : nullptr);
} catch (...) {
}

void create_engine() noexcept try {
  if (state() != State::kIdle && state() != State::kOpen)
    return;  // another thread creates it, or none
  const auto primaries = hold_primaries();
  create_engine_once();
  const std::lock_guard hold(contexts().lock);
  make_known(nullptr);
} catch (...) {
}

}  // namespace braid::preload
