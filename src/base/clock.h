// The clock that braid's own threads act by: the second of braid's two seams. On hardware it is the
// system's. On the emulated server it is the server's virtual time, so that a thread which polls
// and sleeps does everything at a time that does not depend on how fast this machine is.
//
// Virtual time stands still while anybody holds it. A thread that acts by the clock holds time
// while it works and lets it go to sleep, or to wait for work on a condition variable. Whoever ends
// such a wait calls hold() for the thread, which gives that hold back: holds are a count. The
// wake-up is thereby an event of virtual time, as the end of a copy is.
//
//   submit:  clock.now_ns();  // waits until the thread rests
//            lock; queue work; if (idle) { idle = false; clock.hold(); work.notify_one(); }
//   thread:  lock; idle = true; clock.release(); work.wait(lock, [&] { return !idle; }); unlock;
//            while (step()) clock.sleep_ns(5000);
//
// - Other threads' now_ns() and driver calls that ask or wait are answered when nobody holds time;
//   their other driver calls carry their own times anyway. What else they share with a thread that
//   acts by the clock, they touch after such a call, so that it does not depend on which of them
//   the machine ran first. No lock that the holder may want is held meanwhile; after seconds of
//   that the emulator loses patience and time goes on.
// - Nobody calls hold() for a thread that sleeps by the clock: it would not wake up. It looks by
//   itself when its time has come.
// - A thread is started under a hold. It is known to act by the clock once it has called release or
//   sleep_ns; it does that before its first driver call. From then on it calls hold() for others
//   only while it holds time itself.
// - While a thread holds time, its driver calls take effect at its own time, its queries find what
//   was true when it woke up, and time does not pass however often it looks: it sleeps to let time
//   pass. A driver call that waits for the GPU lets go of the hold meanwhile.
// - What it stores to host memory is seen by the GPUs when it sleeps or releases, at its own time.
//
// All functions may be called from any thread and cannot fail.
#pragma once

#include <cstdint>

namespace braid {

class Clock {
 public:
  /// Nanoseconds since some fixed point; the calling thread never sees it go back. If another
  /// thread holds time, waits until it lets go.
  virtual uint64_t now_ns() = 0;
  /// All processes of the host read the same time.
  virtual bool is_common() const { return false; }
  /// Time stands still until it is released as often as it was held.
  virtual void hold() = 0;
  virtual void release() = 0;
  /// Lets go of one hold, sleeps, and holds again from the moment it wakes up.
  virtual void sleep_ns(uint64_t duration_ns) = 0;

 protected:
  ~Clock() = default;  // clocks live as long as the process; nobody owns one through this class
};

/// CLOCK_MONOTONIC, which nobody can hold: hold and release do nothing.
Clock& system_clock();

}  // namespace braid
