// An object of the process that its threads lock. It is never destroyed: they may still be here
// while the process exits. A forked child begins anew, since a lock that another thread held when
// the process forked would stay locked there.
#pragma once

#include <pthread.h>

#include <atomic>
#include <new>

namespace braid::preload {

/// This process's T, made by the first call. One for each T.
template <typename T>
T& renewed_in_child() {
  // Published last: a child has no T, or one that is made anew. A function's own static variable
  // would have a lock too, which the child could inherit.
  static constinit std::atomic<T*> instance{nullptr};
  if (T* there = instance.load(std::memory_order_acquire)) return *there;
  T* made = new T;  // owner: the process, until its end
  pthread_atfork(nullptr, nullptr, [] {
    if (T* there = instance.load()) new (there) T;  // owner: as before
  });
  T* first = nullptr;
  if (instance.compare_exchange_strong(first, made)) return *made;
  delete made;  // owner: this thread, which came second
  return *first;
}

}  // namespace braid::preload
