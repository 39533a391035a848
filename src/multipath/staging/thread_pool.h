// Threads that copy memory on the CPU together with the calling thread, and make the pages of its
// destination. One core moves about 11 GB/s here, and a server's links carry twenty times that.
//
// The threads sleep when there is nothing to copy. They make no CUDA calls, take none of the
// program's signals, and exist only in the process that made them: after fork, is_usable() says no.
//
// Threads: any thread may call any function at any time; helpers join the task that has fewest.
// Errors: the pool works without threads that cannot be created.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <variant>
#include <vector>

#include "host/usable_cpus.h"
#include "multipath/staging/fresh_pages.h"

namespace braid::multipath::staging {

/// The number of threads if the program does not say: a quarter of the CPUs that this process may
/// use, since the program has work of its own, and at most 16, which move 70 GB/s; twice as many
/// move 80. At least one beside the calling thread; none on a single CPU, which it would share.
int default_thread_count(const UsableCpus& cpus);

/// Where the bytes are needed next. A ring stays in the CPUs' caches, where the links read it: 16
/// threads write it with 138 GB/s through the caches and 68 past them. The program's memory does
/// not: 84 and 156 GB/s (both on the CPUs beside 4xH200).
enum class Stores : uint8_t { kCached, kPastCaches };

class ThreadPool {
 public:
  /// The threads run on these CPUs; null: on those of the calling thread, which may be fewer than
  /// were counted.
  explicit ThreadPool(int threads, const cpu_set_t* cpus = nullptr);
  /// Ends the threads. No task may be under way, and the process is the one that made the pool.
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  /// False if it has no thread, and in a child of the process that made the pool.
  bool is_usable() const;

  /// One copy of memory, or the making of pages; begins at once. It lives on the stack of the
  /// calling thread.
  class Task {
   public:
    Task(ThreadPool& pool, void* to, const void* from, uint64_t size_bytes, Stores stores);
    Task(ThreadPool& pool, const PageRange& pages);
    ~Task() { finish(); }
    Task(const Task&) = delete;
    Task& operator=(const Task&) = delete;

    /// Takes part until all of the task is done.
    void finish();

   private:
    friend class ThreadPool;
    struct Copy {
      uint8_t* to;
      const uint8_t* from;
      Stores stores;
    };
    using Work = std::variant<Copy, PageRange>;

    Task(ThreadPool& pool, const Work& work, uint64_t size_bytes, uint64_t block_bytes);
    bool do_block();
    bool has_blocks() const;

    ThreadPool& pool_;
    const Work work_;
    const uint64_t size_bytes_;
    const uint64_t block_bytes_;
    std::atomic<uint64_t> next_{0};  // first byte that is not taken
    std::atomic<int> helpers_{0};    // changes under the pool's lock
    bool finished_ = false;
  };

 private:
  void work();
  Task* choose_task();
  void wait_for_task(std::unique_lock<std::mutex>& lock);

  const pid_t process_;
  std::mutex mutex_;
  std::condition_variable posted_;  // a task, or the end
  std::condition_variable left_;    // a helper has left its task
  std::vector<Task*> tasks_;        // with blocks that may still be taken
  std::atomic<uint64_t> posts_{0};  // tasks so far
  int sleepers_ = 0;
  bool is_ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace braid::multipath::staging
