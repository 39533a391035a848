// FileJobs by pread and pwrite in threads, which are made when they are needed.
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "fabric/thread.h"
#include "transfer/file_jobs.h"
#include "transfer/folder_queue.h"
#include "transfer/storage.h"

namespace braid::transfer {
namespace {

constexpr size_t kThreadsMax = 16;
constexpr size_t kOfFolderMax = 4;  // threads that work for one folder at a time

Cause run(const FileJob& job) {
  bool is_cached_only = false;
  for (uint64_t moved = 0; moved < job.memory.size();) {
    const bool past_cache = !is_cached_only && is_direct(job, moved);
    const int file = past_cache ? job.file->direct.get() : job.file->cached.get();
    std::byte* memory = job.memory.data() + moved;
    const size_t rest = job.memory.size() - moved;
    const auto position = static_cast<off_t>(job.position + moved);
    const ssize_t result =
        job.is_write ? pwrite(file, memory, rest, position) : pread(file, memory, rest, position);
    if (result == 0) return Cause::kOutside;
    if (result > 0)
      moved += static_cast<uint64_t>(result);
    else if (errno == EINVAL && past_cache)
      is_cached_only = true;
    else if (errno != EINTR)
      return cause_of_storage(errno);
  }
  return Cause::kNone;
}

class Threads final : public FileJobs {
 public:
  Threads() : own_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), told_(own_.get()) {}
  explicit Threads(int told) : told_(told) {}
  ~Threads() override {
    {
      const std::lock_guard lock(mutex_);
      is_ending_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  void start(FileJob job) override {
    ++under_way_;
    {
      const std::lock_guard lock(mutex_);
      const uint64_t folder = job.file->folder;
      waiting_.push(folder, std::move(job));
    }
    const bool needs_thread = threads_.size() < std::min(under_way_, kThreadsMax);
    if (needs_thread && !add_thread() && threads_.empty()) return give_up();
    changed_.notify_one();
  }

  bool take_back(uint64_t tag) override {
    std::optional<FileJob> taken;
    {
      const std::lock_guard lock(mutex_);
      taken = waiting_.take_waiting([&](const FileJob& job) { return job.tag == tag; });
    }
    if (taken) --under_way_;
    return taken.has_value();
  }

  bool arm() override {
    uint64_t count = 0;
    (void)!read(told_, &count, sizeof count);
    const std::lock_guard lock(mutex_);
    return ended_.empty();
  }

  bool step() override {
    if (under_way_ == 0) return false;
    std::deque<std::pair<FileJob, Cause>> ended;
    {
      const std::lock_guard lock(mutex_);
      ended.swap(ended_);
    }
    under_way_ -= ended.size();
    for (const auto& [job, cause] : ended) job.ended(cause);
    return !ended.empty();
  }

  int descriptor() const override { return told_; }
  size_t under_way() const override { return under_way_; }

 private:
  /// False: the system allows no further thread now (`ulimit -u`, pids.max). A later job tries
  /// again.
  bool add_thread() {
    try {
      threads_.push_back(fabric::start_thread([this] { work(); }));
    } catch (const std::system_error&) {
      return false;
    }
    return true;
  }

  /// Ends the jobs that wait, since no thread does them: at the next step, as all jobs end.
  void give_up() {
    const std::lock_guard lock(mutex_);
    for (FileJob& job : waiting_.take_waiting())
      ended_.emplace_back(std::move(job), Cause::kTooMuch);
    tell();
  }

  void tell() {
    const uint64_t one = 1;
    (void)!write(told_, &one, sizeof one);
  }

  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return is_ending_ || waiting_.has_next(); });
      if (is_ending_) return;
      FileJob job = waiting_.pop();
      lock.unlock();
      const Cause cause = run(job);
      lock.lock();
      waiting_.end(job.file->folder);
      ended_.emplace_back(std::move(job), cause);
      tell();
    }
  }

  Descriptor own_;
  int told_;
  size_t under_way_ = 0;
  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  FolderQueue<FileJob> waiting_{kOfFolderMax};
  std::deque<std::pair<FileJob, Cause>> ended_;
  bool is_ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<FileJobs> open_threads() { return std::make_unique<Threads>(); }
std::unique_ptr<FileJobs> open_threads(int told) { return std::make_unique<Threads>(told); }

}  // namespace braid::transfer
