#include "fabric/library/delegating_mutex.h"

namespace braid::fabric {

// Who hands in an errand tries the mutex afterwards; who has given the mutex back looks for errands
// afterwards. So one of the two sees the other.
void DelegatingMutex::hand_in(Errand& errand) {
  errand.next = errands_.load(std::memory_order_relaxed);
  while (!errands_.compare_exchange_weak(errand.next, &errand)) continue;
  if (try_lock()) unlock();
}

bool DelegatingMutex::has_errands() {
  Errand* none = nullptr;
  return !errands_.compare_exchange_strong(none, nullptr);
}

void DelegatingMutex::unlock() {
  do {
    serve();
    mutex_.unlock();
  } while (has_errands() && mutex_.try_lock());
}

void DelegatingMutex::serve() {
  if (errands_.load(std::memory_order_relaxed) == nullptr) return;
  Errand* first = nullptr;
  for (Errand* last = errands_.exchange(nullptr); last != nullptr;) {
    Errand* const before = last->next;
    last->next = first;
    first = last;
    last = before;
  }
  while (first != nullptr) {
    Errand& errand = *first;
    first = errand.next;  // it is gone once it is done
    Parked* const done = errand.done;
    try {
      errand.call(errand.work);
    } catch (...) {
      errand.thrown = std::current_exception();
    }
    if (done != nullptr) done->release();
  }
}

}  // namespace braid::fabric
