// The program's signals are for the program's threads: a thread that is started while this lives
// inherits the mask, and none is delivered to it. Faults are not blocked: the program may be the
// one who handles them (memory that it makes readable when it is first touched, a report of a
// crash), and a blocked one ends the process without asking.
//
// Threads: of the calling thread alone; gives its own mask back at the end of its scope.
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
