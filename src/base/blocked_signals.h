// Keeps the program's signals for the program's threads: a thread started in this scope inherits
// the mask, and no signal is delivered to it. Faults are not blocked. The program may handle them
// (memory that it makes readable at the first touch, a report of a crash), and a blocked fault ends
// the process at once.
//
// Threads: affects the calling thread alone; restores its mask at the end of the scope.
#pragma once

#include <csignal>
#include <initializer_list>

namespace braid {

class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS})
      sigdelset(&all, fault);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace braid
