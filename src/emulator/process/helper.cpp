// The one thread of the emulated driver. It runs host functions, as the driver's own thread does;
// and when the program has made no driver call for a while (it polls memory, or sleeps), it carries
// pending work on, so that what such a program waits for happens.
//
// While it only runs host functions, results do not depend on real time. Work that it carries on by
// itself gets the times it would have had; only work enqueued afterwards, in other streams, may
// start later than it would have. docs/emulator.md, "Determinism".
#include <pthread.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/blocked_signals.h"
#include "emulator/process/process.h"
#include "host/process_stat.h"

namespace braid::emulator {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

// Silence: no driver call was made while the program has burnt this much CPU time (it polls), or
// while this much time has passed, at whose end all its threads sleep. Time in which the machine
// does not run the program is not its silence: a thread may be waiting for a core. So may this
// thread; hence, between two looks, no more counts than a look that is somewhat late.
constexpr milliseconds kBusySilence{20};
constexpr milliseconds kIdleSilence{60};
constexpr milliseconds kSample{2};
constexpr milliseconds kMostOfALook{4};
constexpr microseconds kHostMemoryLook{50};
constexpr int kEventsPerTurn = 1024;

microseconds time_of(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return microseconds(now.tv_sec * 1'000'000 + now.tv_nsec / 1000);
}

// Of the process, without this thread.
microseconds program_cpu_time() {
  return time_of(CLOCK_PROCESS_CPUTIME_ID) - time_of(CLOCK_THREAD_CPUTIME_ID);
}

class Silence {
 public:
  /// Says whether the program has been silent for long. It stays so until the next call.
  bool has_lasted(const Presence& program, Lock& lock) {
    const auto now = Clock::now();
    const auto cpu = program_cpu_time();
    if (is_heard(program) || restarted_) {
      heard_ = program.ended();
      restarted_ = has_lasted_ = false;
      idle_ = {};
      since_cpu_ = cpu;
    } else {
      idle_ += std::min<Clock::duration>(now - looked_, kMostOfALook);
    }
    looked_ = now;
    if (cpu - since_cpu_ >= kBusySilence) has_lasted_ = true;
    if (!has_lasted_ && idle_ >= kIdleSilence) {
      idle_ = {};
      has_lasted_ = is_asleep(program, lock);
    }
    return has_lasted_;
  }
  void restart() { restarted_ = true; }

 private:
  bool is_heard(const Presence& program) const {
    return program.is_inside() || program.ended() != heard_;
  }
  /// Without the lock: a thread that waits for it looks asleep.
  bool is_asleep(const Presence& program, Lock& lock) const {
    lock.unlock();
    const bool is_asleep = are_other_threads([](char state) { return state != 'R'; });
    lock.lock();
    return is_asleep && !is_heard(program);
  }

  uint64_t heard_ = 0;
  bool restarted_ = true;
  bool has_lasted_ = false;
  Clock::time_point looked_;
  Clock::duration idle_{};
  microseconds since_cpu_{0};
};

void run_host_call(World& world, Lock& lock) {
  const HostCall call = std::move(world.host_calls.front());
  world.host_calls.erase(world.host_calls.begin());
  lock.unlock();
  this_thread().in_host_function = true;
  call.function();
  lock.lock();
  --world.host_calls_running;
  world.scheduler.finish(call.op);
  world.changed.notify_all();
}

// Events that are due, for a while; then others get the lock.
void carry_on(World& world, Lock& lock) {
  bool progressed = false;
  for (int i = 0; i < kEventsPerTurn && !world.stands_still(); ++i) {
    if (!world.simulation.step(kForever)) break;
    progressed = true;
  }
  world.watches.look_at_host_memory();
  if (progressed) {
    world.changed.notify_all();
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
  } else {
    world.helper_wake.wait_for(lock, kHostMemoryLook);
  }
}

void help(World& world) {
  Lock lock(world.mutex);
  Silence silence;
  while (!process_is_exiting()) {
    if (!world.host_calls.empty()) {
      run_host_call(world, lock);
    } else if (!world.has_pending()) {
      silence.restart();
      world.helper_idle = true;
      world.helper_wake.wait(lock);
      world.helper_idle = false;
    } else if (silence.has_lasted(world.presence, lock)) {
      carry_on(world, lock);
    } else {
      world.helper_wake.wait_for(lock, kSample);
    }
  }
}

}  // namespace

void start_helper(World& world) {
  if (world.helper_started) {
    if (world.helper_idle) world.helper_wake.notify_all();
    return;
  }
  world.helper_started = true;
  const BlockedSignals blocked;  // inherited
  std::thread(help, std::ref(world)).detach();
}

}  // namespace braid::emulator
