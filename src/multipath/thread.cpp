#include "multipath/thread.h"

#include "base/blocked_signals.h"

namespace braid::multipath {

bool Thread::start(void (*body)(void*), void* argument) {
  body_ = body;
  argument_ = argument;
  const BlockedSignals blocked;  // inherited
  has_started_ = pthread_create(&thread_, nullptr, run, this) == 0;
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
