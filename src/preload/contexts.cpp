#include "preload/contexts.h"

#include <cstdlib>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "base/try.h"
#include "preload/helper.h"
#include "preload/messages.h"
#include "preload/primaries.h"
#include "preload/renewed_in_child.h"
#include "preload/reporter.h"
#include "preload/state.h"

namespace braid::preload {
namespace {

class Contexts {
 public:
  void add(CUcontext context) {
    const std::lock_guard hold(lock_);
    made_.insert(context);
  }
  bool remove(CUcontext context) {
    const std::lock_guard hold(lock_);
    return made_.erase(context) != 0;
  }

 private:
  std::mutex lock_;
  std::set<CUcontext> made_;  // by the program, and not yet destroyed
};

Contexts& contexts() { return renewed_in_child<Contexts>(); }

void say(const Status& status) {
  if (!status.ok()) say_once((status.message() + ". Copies there stay native").c_str());
}

void create(multipath::Engine*& created) {
  note_primaries();  // before braid holds any, or could seem to
  auto engine = multipath::Engine::create(*driver(), options(), say_once);
  if (!engine.ok()) return give_engine_up(engine.status().message().c_str());
  for (const std::string& problem : engine.value()->problems()) say_once(problem.c_str());
  created = engine.value().get();
  set_engine(std::move(engine).value());
  // Registered after the driver's own handlers, so it runs before them, while copies still move.
  std::atexit(report_at_exit);
  if (options().stats_interval_s != 0) start_helper();
}

// The engine, which the first thread creates, while the others wait. Null: there is none.
multipath::Engine* created_engine() noexcept {
  multipath::Engine* created = nullptr;
  try {
    if (driver() != nullptr && begin_creating()) create(created);
  } catch (...) {
    give_engine_up("out of memory while creating the engine");
    return nullptr;
  }
  if (created != nullptr) adopt_primaries(*created);
  wait_while_creating();
  return engine();
}

}  // namespace

void context_made(CUcontext context) noexcept try {
  if (is_for_driver()) return;
  const ReentryGuard guard;
  multipath::Engine* open = created_engine();
  contexts().add(context);
  if (open != nullptr) say(open->add_created(context));
} catch (...) {
}

void primary_made(CUdevice device) noexcept {
  if (multipath::Engine* open = created_engine()) adopt_primary(*open, device);
}

bool forget_context(CUcontext context, Ending ending) noexcept try {
  const bool is_made = contexts().remove(context);
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
  if (is_made) contexts().add(context);
  multipath::Engine* open = engine();
  if (open == nullptr) return;
  if (is_made)
    say(open->add_created(context));
  else
    adopt_primaries(*open);
} catch (...) {
}

Status make_known(CUcontext context) {
  multipath::Engine* open = engine();
  if (context == nullptr && open != nullptr) adopt_primaries(*open);
  if (context == nullptr || open == nullptr || open->knows_context(context)) return {};
  BRAID_LET(device, open->device_of(context));
  // It may be the primary one.
  return adopt_primary(*open, device) ? open->add_created(context) : Status();
}

void create_engine() noexcept {
  if (multipath::Engine* open = created_engine()) adopt_primaries(*open);
}

}  // namespace braid::preload
