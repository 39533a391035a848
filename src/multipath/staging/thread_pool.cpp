#include "multipath/staging/thread_pool.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <system_error>

#include "base/blocked_signals.h"
#include "host/huge_pages.h"
#include "multipath/staging/copy_past_caches.h"

namespace braid::multipath::staging {
namespace {

constexpr int kMostThreads = 16;

// Small enough that 16 threads end a chunk of 8 MB together, large enough that taking a block costs
// nothing beside copying it (10 us).
constexpr uint64_t kCopyBlockBytes = 128 << 10;

// Between two chunks of one copy a thread stays awake: waking it costs as much again.
constexpr std::chrono::microseconds kPatience{50};

// True as soon as `condition` is; false when it is not for as long as a thread stays awake.
template <typename Condition>
bool comes_true_soon(Condition condition) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

void copy_block(uint8_t* to, const uint8_t* from, uint64_t size_bytes, Stores stores) {
  if (stores == Stores::kPastCaches)
    copy_past_caches(to, from, size_bytes);
  else
    std::memcpy(to, from, size_bytes);
}

// The huge page, or the place of one, in which the first page lies. Blocks are counted from here.
uintptr_t first_huge_page(const PageRange& pages) {
  return pages.begin / kHugePageBytes * kHugePageBytes;
}

void populate_block(const PageRange& pages, uint64_t at, uint64_t size_bytes) {
  const uintptr_t begin = first_huge_page(pages) + at;
  populate({std::max(begin, pages.begin), begin + size_bytes});
}

}  // namespace

int default_thread_count(const UsableCpus& cpus) {
  return cpus.count > 1 ? std::clamp(cpus.count / 4, 1, kMostThreads) : 0;
}

ThreadPool::ThreadPool(int threads, const cpu_set_t* cpus) : process_(getpid()) {
  const BlockedSignals blocked;  // inherited by the threads
  threads_.reserve(static_cast<size_t>(threads));
  try {
    while (threads_.size() < static_cast<size_t>(threads)) {
      threads_.emplace_back([this] { work(); });
      const pthread_t thread = threads_.back().native_handle();
      pthread_setname_np(thread, "braid-stage");
      // If the system refuses, it has the CPUs of this thread.
      if (cpus != nullptr) pthread_setaffinity_np(thread, sizeof *cpus, cpus);
    }
  } catch (const std::system_error&) {
    // A limit on threads: those there are will do.
  }
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  posted_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool ThreadPool::is_usable() const { return !threads_.empty() && process_ == getpid(); }

void ThreadPool::work() {
  std::unique_lock lock(mutex_);
  while (!is_ending_) {
    Task* task = choose_task();
    if (task == nullptr) {
      wait_for_task(lock);
      continue;
    }
    task->helpers_.fetch_add(1);
    lock.unlock();
    while (task->do_block()) {
    }
    lock.lock();
    if (task->helpers_.fetch_sub(1) == 1) left_.notify_all();
  }
}

ThreadPool::Task* ThreadPool::choose_task() {
  Task* chosen = nullptr;
  for (Task* task : tasks_)
    if (task->has_blocks() && (chosen == nullptr || task->helpers_ < chosen->helpers_))
      chosen = task;
  return chosen;
}

void ThreadPool::wait_for_task(std::unique_lock<std::mutex>& lock) {
  const uint64_t seen = posts_.load();
  lock.unlock();
  const bool is_posted = comes_true_soon([&] { return posts_.load() != seen; });
  lock.lock();
  if (is_posted) return;
  ++sleepers_;
  posted_.wait(lock, [&] { return posts_.load() != seen || is_ending_; });
  --sleepers_;
}

ThreadPool::Task::Task(ThreadPool& pool, void* to, const void* from, uint64_t size_bytes,
                       Stores stores)
    : Task(pool, Copy{static_cast<uint8_t*>(to), static_cast<const uint8_t*>(from), stores},
           size_bytes, kCopyBlockBytes) {}

ThreadPool::Task::Task(ThreadPool& pool, const PageRange& pages)
    : Task(pool, pages, pages.is_empty() ? 0 : pages.end - first_huge_page(pages), kHugePageBytes) {
}

ThreadPool::Task::Task(ThreadPool& pool, const Work& work, uint64_t size_bytes,
                       uint64_t block_bytes)
    : pool_(pool), work_(work), size_bytes_(size_bytes), block_bytes_(block_bytes) {
  if (size_bytes_ == 0) return;
  std::unique_lock lock(pool_.mutex_);
  pool_.tasks_.push_back(this);
  pool_.posts_.fetch_add(1);
  const bool is_anyone_asleep = pool_.sleepers_ > 0;
  lock.unlock();
  if (is_anyone_asleep) pool_.posted_.notify_all();
}

bool ThreadPool::Task::has_blocks() const { return next_.load() < size_bytes_; }

bool ThreadPool::Task::do_block() {
  const uint64_t at = next_.fetch_add(block_bytes_);
  if (at >= size_bytes_) return false;
  const uint64_t size_bytes = std::min(block_bytes_, size_bytes_ - at);
  if (const auto* copy = std::get_if<Copy>(&work_))
    copy_block(copy->to + at, copy->from + at, size_bytes, copy->stores);
  else
    populate_block(std::get<PageRange>(work_), at, size_bytes);
  return true;
}

void ThreadPool::Task::finish() {
  if (finished_) return;
  finished_ = true;
  while (do_block()) {
  }
  {
    const std::lock_guard lock(pool_.mutex_);
    std::erase(pool_.tasks_, this);  // nobody joins any more
  }
  (void)comes_true_soon([&] { return helpers_.load() == 0; });
  // Under the lock: the last helper has let go of this task when it is no longer counted.
  std::unique_lock lock(pool_.mutex_);
  pool_.left_.wait(lock, [&] { return helpers_.load() == 0; });
}

}  // namespace braid::multipath::staging
