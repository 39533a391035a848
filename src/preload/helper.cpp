#include "preload/helper.h"

#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <semaphore>
#include <thread>

#include "multipath/process_table.h"
#include "multipath/thread.h"
#include "preload/lifecycle.h"
#include "preload/runtime.h"

namespace braid::preload {
namespace {

struct Helper {
  multipath::Thread thread;
  std::atomic<bool> has_thread{false};
  std::atomic<bool> has_begun{false};
  std::atomic<bool> stops{false};
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
constexpr std::chrono::seconds kTryAgain{10};

// True: there is another.
bool open_step() {
  const bool is_more = open_next_relay();
  if (is_more) std::this_thread::sleep_for(kTurnOfOthers);
  return is_more;
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
    if (open.has_wishes()) {
      open_step();
      continue;
    }
    if (open.is_open()) row.answers = 1;
    const bool is_whole = open.tend();
    if (helper().stops) break;
    wait_for_question(row, asked, is_whole ? std::chrono::milliseconds::zero() : kTryAgain);
  }
  row.answers = 0;
}

void help(void*) try {
  const Inside inside;
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

void open_relays(Opening when) noexcept {
  if (helper().has_begun.exchange(true)) return wake_helper();
  helper().pid = getpid();
  std::atexit(
      [] { end_helper(); });  // after the driver's own handlers were, and so called before them
  if (multipath::Engine* open = engine(); open != nullptr && when == Opening::kNow) {
    const Inside inside;
    open->want(multipath::kEveryGpu);
    while (!helper().stops && open_step()) continue;
  }
  helper().has_thread = helper().thread.start(help, nullptr);
  if (!helper().has_thread && when == Opening::kInBackground)
    give_engine_up("the process may not have another thread to open relays with");
}

void wake_helper() noexcept {
  if (multipath::Engine* open = engine(); open != nullptr && helper().has_begun) wake(open->row());
}

}  // namespace braid::preload
