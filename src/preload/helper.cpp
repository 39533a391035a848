#include "preload/helper.h"

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <semaphore>
#include <string>
#include <thread>

#include "multipath/process_table.h"
#include "multipath/thread.h"
#include "preload/access.h"
#include "preload/messages.h"
#include "preload/reporter.h"
#include "preload/state.h"

namespace braid::preload {
namespace {

struct Helper {
  multipath::Thread thread;
  std::atomic<bool> has_thread{false};
  std::atomic<bool> opens{false};  // relays have been asked for
  std::atomic<bool> stops{false};
  std::mutex opening;  // one thread at a time opens relays
  std::binary_semaphore ended{0};
  pid_t pid = 0;  // a child that was forked has no such thread
};

Helper& helper() {
  static Helper& instance = *new Helper;  // owner: the process, until its end
  return instance;
}

// For threads that are about to end a primary context, and wait for the one that is being made.
constexpr std::chrono::milliseconds kTurnOfOthers{1};
constexpr std::chrono::seconds kLongestStep{10};
// While relays lack memory that they have given back.
constexpr std::chrono::milliseconds kTryAgain{10'000};

// Opens the next relay, or after the last lends memory to the relays and lets copies in. True:
// there is another. Holds none of the locks that the program's calls wait for: the driver may make
// this thread wait for a lock that the program holds.
bool open_relay_step(multipath::Engine& open) {
  const auto is_more = open.open_next_relay();
  if (is_more.ok() && is_more.value()) return true;
  if (!is_more.ok()) say_once((is_more.status().message() + ". Every copy stays native").c_str());
  grant_memory_made_so_far(open);
  open.open_targets();
  for (const std::string& problem : open.problems()) say_once(problem.c_str());
  return false;
}

bool open_step(multipath::Engine& open) try {
  const bool is_more = open_relay_step(open);
  if (is_more) std::this_thread::sleep_for(kTurnOfOthers);
  return is_more;
} catch (...) {
  give_engine_up("out of memory while opening relays");
  return false;
}

std::string answer_of(multipath::Engine& open) {
  std::string text = open.row().is_off != 0 ? "braid is switched off here\n" : "";
  const std::string waits = open.describe_waits();
  return text + (waits.empty() ? "nothing here waits for braid\n" : waits);
}

// Answers come first: while relays open, and a step hangs, somebody may ask why.
void serve(multipath::Engine& open) {
  multipath::ProcessRow& row = open.row();
  while (!helper().stops && engine() != nullptr) {
    const uint32_t asked = row.asked;
    if (asked != row.answered) answer(row, asked, answer_of(open));
    if (open.has_relay_requests()) {
      const std::lock_guard hold(helper().opening);
      if (open.has_relay_requests() && !helper().stops) open_step(open);
      continue;
    }
    if (open.are_relays_open()) row.answers = 1;
    const auto next_try = open.restore_buffers() ? std::chrono::milliseconds::max() : kTryAgain;
    const auto next_report = report_when_due();
    if (helper().stops) break;
    wait_for_question(row, asked, std::min(next_try, next_report));
  }
  row.answers = 0;
}

void help(void*) try {
  const ReentryGuard guard;
  if (multipath::Engine* open = engine(); open != nullptr) serve(*open);
  helper().ended.release();
} catch (...) {  // no memory for an answer
  helper().ended.release();
}

}  // namespace

void end_helper() noexcept {
  if (helper().pid != getpid() || helper().stops.exchange(true)) return;
  wake_helper();
  if (helper().has_thread && helper().ended.try_acquire_for(kLongestStep)) helper().thread.join();
}

bool start_helper() noexcept {
  static const bool has_thread = [] {
    helper().pid = getpid();
    std::atexit(end_helper);  // after the driver's own handlers were, and so called before them
    return helper().has_thread = helper().thread.start(help, nullptr);
  }();
  return has_thread;
}

void open_relays(Opening when) noexcept {
  if (helper().opens.exchange(true)) return wake_helper();
  const bool has_thread = start_helper();
  if (!has_thread && when == Opening::kInBackground)
    return give_engine_up("the process may not have another thread to open relays with");
  if (multipath::Engine* open = engine(); open != nullptr && when == Opening::kNow) {
    const ReentryGuard guard;
    const std::lock_guard hold(helper().opening);
    open->request_relays(multipath::kEveryGpu);
    while (!helper().stops && open_step(*open)) continue;
  }
  wake_helper();
}

void wake_helper() noexcept {
  if (multipath::Engine* open = engine(); open != nullptr && helper().has_thread) wake(open->row());
}

}  // namespace braid::preload
