#include "preload/engine_thread.h"

#include <unistd.h>

#include <algorithm>
#include <string>
#include <thread>

#include "multipath/process_table.h"
#include "preload/reporter.h"

namespace braid::preload {
namespace {

// For threads that are about to end a primary context, and wait for the one that is being made.
constexpr std::chrono::milliseconds kTurnOfOthers{1};
// While relays lack memory that they have given back.
constexpr std::chrono::milliseconds kTryAgain{10'000};

std::string answer_of(multipath::Engine& engine) {
  std::string text = engine.row().is_off != 0 ? "braid is switched off here\n" : "";
  const std::string waits = engine.describe_waits();
  return text + (waits.empty() ? "nothing here waits for braid\n" : waits);
}

}  // namespace

bool EngineThread::is_of_this_process() const noexcept { return pid_ == getpid(); }

bool EngineThread::start(void (*body)(void* self)) noexcept {
  pid_ = getpid();
  const bool has_started = thread_.start(body, this);
  if (!has_started) pid_ = 0;
  return has_started;
}

void EngineThread::end(std::chrono::seconds limit) noexcept {
  if (!is_of_this_process()) return;
  stops_ = true;
  wake();
  if (!ended_.try_acquire_for(limit)) return;
  thread_.join();
  pid_ = 0;
}

void EngineThread::wake() noexcept {
  if (is_of_this_process()) multipath::wake(engine_.row());
}

void EngineThread::open_relays() noexcept {
  const std::lock_guard hold(opening_);
  engine_.request_relays(multipath::kEveryGpu);
  while (open_step()) continue;
}

// Opens the next relay, or after the last lets copies in. True: there is another.
bool EngineThread::open_step() noexcept try {
  if (stops_) return false;
  const auto is_more = engine_.open_next_relay();
  if (is_more.ok() && is_more.value()) {
    std::this_thread::sleep_for(kTurnOfOthers);
    return true;
  }
  if (!is_more.ok())
    events_.problem((is_more.status().message() + ". Every copy stays native").c_str());
  events_.relays_opened(engine_);
  engine_.open_targets();
  for (const std::string& problem : engine_.problems()) events_.problem(problem.c_str());
  return false;
} catch (...) {
  has_failed_ = true;
  events_.failed();
  return false;
}

void EngineThread::serve() noexcept {
  try {
    serve_requests();
  } catch (...) {  // no memory for an answer
  }
  engine_.row().answers = 0;
  ended_.release();
}

// Answers come first: while relays open, and a step hangs, somebody may ask why.
void EngineThread::serve_requests() {
  multipath::ProcessRow& row = engine_.row();
  while (!stops_ && !has_failed_) {
    const uint32_t asked = row.asked;
    if (asked != row.answered) answer(row, asked, answer_of(engine_));
    if (engine_.has_relay_requests()) {
      const std::lock_guard hold(opening_);
      if (engine_.has_relay_requests()) open_step();
      continue;
    }
    if (engine_.are_relays_open()) row.answers = 1;
    const auto next_try = engine_.restore_buffers() ? std::chrono::milliseconds::max() : kTryAgain;
    const auto next_report = report_when_due();
    if (!stops_) wait_for_question(row, asked, std::min(next_try, next_report));
  }
}

}  // namespace braid::preload
