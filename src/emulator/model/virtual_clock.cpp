#include "emulator/model/virtual_clock.h"

#include <unistd.h>

#include <algorithm>

#include "emulator/errors.h"

namespace braid::emulator {
namespace {

using std::chrono::steady_clock;

// In real time: a thread that is stuck while it holds the clock must not hang the process. Long
// enough for a thread that is only slow, on a loaded machine or under a sanitizer.
constexpr std::chrono::seconds kHoldPatience{2};

// What a thread is to the clock. There is one clock in a process.
struct Actor {
  bool joined = false;
  bool holding = false;
  Time own = 0;  // while holding; afterwards, what it must not go back before
};

Actor& actor() {
  thread_local Actor of_this_thread;
  return of_this_thread;
}

}  // namespace

Time VirtualClock::now() {
  const Actor& self = actor();
  return self.holding ? self.own : std::max(program_, self.own);
}

void VirtualClock::spend_us(double us) { wait_until(now() + from_us(us)); }

void VirtualClock::wait_until(Time when) {
  Time& mine = actor().holding ? actor().own : program_;
  mine = std::max(mine, when);
}

bool VirtualClock::calling_thread_holds() const { return actor().holding; }

void VirtualClock::count_hold() {
  ++holds_;
  changed_ = steady_clock::now();
}

void VirtualClock::drop_hold() {
  holds_ = std::max(0, holds_ - 1);
  given_up_ = std::min(given_up_, holds_);
  changed_ = steady_clock::now();
}

bool VirtualClock::stands_still() {
  if (holds_ <= given_up_) return false;
  if (steady_clock::now() - changed_ < kHoldPatience) return true;
  say("a thread has held the virtual clock for 2 s of real time; time goes on without it");
  given_up_ = holds_;
  return false;
}

void VirtualClock::hold() {
  handed_.push_back(std::max(now(), simulation_.now()));
  count_hold();
}

void VirtualClock::take_up() {
  Actor& self = actor();
  if (!self.joined || self.holding || handed_.empty()) return;
  self.holding = true;
  self.own = std::max(self.own, handed_.front());
  handed_.pop_front();
}

void VirtualClock::join() {
  actor().joined = true;
  take_up();
}

void VirtualClock::release() {
  if (!actor().holding) return;
  actor().holding = false;
  drop_hold();
  // Time has passed for the program too, if it was not in the driver.
  program_ = std::max(program_, simulation_.now());
}

bool VirtualClock::let_go() {
  if (!actor().holding) return false;
  drop_hold();
  return true;
}

void VirtualClock::hold_again() { count_hold(); }

std::shared_ptr<VirtualClock::Sleeper> VirtualClock::fall_asleep(Time duration) {
  Actor& self = actor();
  const Time from = std::max(now(), simulation_.now());
  const Time until = duration < kForever - from ? from + duration : kForever - 1;
  let_go();
  self.holding = true;  // once it wakes up
  self.own = until;
  auto sleeper = std::make_shared<Sleeper>();
  sleepers_.emplace(std::make_pair(until, gettid()), sleeper);
  simulation_.at(until, [this] { wake_first(); });
  return sleeper;
}

void VirtualClock::wake_first() {
  const auto first = sleepers_.begin();
  count_hold();
  first->second->awake = true;
  first->second->woken.notify_one();
  sleepers_.erase(first);
}

}  // namespace braid::emulator
