#include "multipath/thread.h"

#include <signal.h>

namespace braid::multipath {

bool Thread::start(void (*body)(void*), void* argument) {
  body_ = body;
  argument_ = argument;
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // inherited: signals are the program's
  has_started_ = pthread_create(&thread_, nullptr, run, this) == 0;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return has_started_;
}

void* Thread::run(void* self) {
  pthread_setname_np(pthread_self(), "braid");
  const Thread& thread = *static_cast<Thread*>(self);
  thread.body_(thread.argument_);
  return nullptr;
}

void Thread::join() {
  if (has_started_) pthread_join(thread_, nullptr);
}

}  // namespace braid::multipath
