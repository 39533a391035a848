#include "stress/workers.h"

namespace braid::stress {

Workers::~Workers() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Workers::run(int count, std::function<void(size_t)> work) {
  std::unique_lock lock(mutex_);
  work_ = std::move(work);
  while (static_cast<int>(threads_.size()) < count) {
    has_work_.push_back(false);
    threads_.emplace_back([this, number = threads_.size()] { serve(number); });
  }
  for (int number = 0; number < count; ++number) has_work_[number] = true;
  busy_ = count;
  changed_.notify_all();
  changed_.wait(lock, [&] { return busy_ == 0; });
}

void Workers::serve(size_t number) {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return ends_ || has_work_[number]; });
    if (!has_work_[number]) return;
    has_work_[number] = false;
    lock.unlock();
    work_(number);
    lock.lock();
    if (--busy_ == 0) changed_.notify_all();
  }
}

}  // namespace braid::stress
