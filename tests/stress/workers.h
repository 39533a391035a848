// Threads that stay, as in servers: each program's first thread is the same thread as the last
// program's.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace braid::stress {

class Workers {
 public:
  ~Workers();
  /// Runs `work` in `count` threads, numbered from 0, and waits for them.
  void run(int count, std::function<void(size_t)> work);

 private:
  void serve(size_t number);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::thread> threads_;
  std::function<void(size_t)> work_;
  std::vector<bool> has_work_;
  int busy_ = 0;
  bool ends_ = false;
};

}  // namespace braid::stress
