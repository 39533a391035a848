// FileJobs by io_uring. The kernel ties what it has begun to the thread that submitted it: when
// that thread exits, its reads and writes end with EFAULT or ECANCELED, though nothing is wrong
// with them. Threads do the rest of such jobs: whoever drives the ring next may exit as well.
#include <liburing.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <optional>
#include <utility>

#include "fabric/slot_map.h"
#include "transfer/file_jobs.h"
#include "transfer/folder_queue.h"
#include "transfer/storage.h"

namespace braid::transfer {
namespace {

constexpr unsigned kEntries = 256;
constexpr size_t kOfFolderMax = 64;  // jobs of one folder at a time
constexpr size_t kBytesAtOnce = 1 << 30;
constexpr int kLookMs = 1;  // at the end, for what the kernel still does

class Ring final : public FileJobs {
 public:
  static std::unique_ptr<FileJobs> open() {
    std::unique_ptr<Ring> ring(new Ring());  // owner: ring
    if (io_uring_queue_init(kEntries, &ring->ring_, 0) != 0) return nullptr;
    ring->is_open_ = true;
    // A file system that makes its callers wait keeps a worker of the kernel's for each job. By
    // default there are four for each CPU, which one folder could take. Older kernels refuse this.
    unsigned workers[] = {kEntries, 0};  // 0: as it was
    (void)io_uring_register_iowq_max_workers(&ring->ring_, workers);
    ring->told_ = Descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (io_uring_register_eventfd(&ring->ring_, ring->told_.get()) != 0) return nullptr;
    return ring;
  }
  /// Waits until all jobs have ended, so that the kernel no longer uses their memory.
  ~Ring() override {
    while (is_open_ && under_way_ > 0) {
      io_uring_cqe* entry = nullptr;
      if (io_uring_peek_cqe(&ring_, &entry) != 0) {
        (void)poll(nullptr, 0, kLookMs);  // io_uring's own wait may be refused
        continue;
      }
      io_uring_cqe_seen(&ring_, entry);
      --under_way_;
    }
    if (is_open_) io_uring_queue_exit(&ring_);
  }

  void start(FileJob job) override {
    if (is_refused_) return threads().start(std::move(job));
    const uint64_t folder = job.file->folder;
    waiting_.push(folder, jobs_.add({std::move(job), 0, false}));
    post();
  }

  bool take_back(uint64_t tag) override {
    const auto is_it = [&](uint64_t id) { return jobs_.find(id)->what.tag == tag; };
    const std::optional<uint64_t> id = waiting_.take_waiting(is_it);
    if (!id) return threads_ != nullptr && threads_->take_back(tag);
    jobs_.erase(*id);
    return true;
  }

  /// Reads the descriptor, which both tell, before it looks at either.
  bool arm() override {
    uint64_t count = 0;
    if (threads_ == nullptr)
      (void)!read(told_.get(), &count, sizeof count);
    else if (!threads_->arm())
      return false;
    io_uring_cqe* entry = nullptr;
    return io_uring_peek_cqe(&ring_, &entry) != 0;
  }

  bool step() override {
    if (under_way() == 0) return false;
    bool has_some = threads_ != nullptr && threads_->step();
    io_uring_cqe* entry = nullptr;
    while (io_uring_peek_cqe(&ring_, &entry) == 0) {
      const uint64_t id = io_uring_cqe_get_data64(entry);
      const int result = entry->res;
      io_uring_cqe_seen(&ring_, entry);
      --under_way_;
      has_some = true;
      moved(id, result);
    }
    post();
    return has_some;
  }

  int descriptor() const override { return told_.get(); }
  size_t under_way() const override {
    return jobs_.size() + (threads_ == nullptr ? 0 : threads_->under_way());
  }

 private:
  struct Job {
    FileJob what;
    uint64_t moved_bytes = 0;
    bool is_cached_only = false;  // the file system has refused to go past its cache
  };

  Ring() = default;

  void post() {
    if (is_refused_) return;
    while ((!going_on_.empty() || waiting_.has_next()) && under_way_ + posted_.size() < kEntries) {
      io_uring_sqe* entry = io_uring_get_sqe(&ring_);
      if (entry == nullptr) break;
      const uint64_t id = next();
      Job& job = *jobs_.find(id);
      const bool past_cache = !job.is_cached_only && is_direct(job.what, job.moved_bytes);
      const int file = past_cache ? job.what.file->direct.get() : job.what.file->cached.get();
      std::byte* memory = job.what.memory.data() + job.moved_bytes;
      const auto size =
          static_cast<unsigned>(std::min(job.what.memory.size() - job.moved_bytes, kBytesAtOnce));
      const uint64_t position = job.what.position + job.moved_bytes;
      if (job.what.is_write)
        io_uring_prep_write(entry, file, memory, size, position);
      else
        io_uring_prep_read(entry, file, memory, size, position);
      // Many a file system waits for its server within the call that submits, whatever io_uring
      // asks of it. Workers of the kernel's wait there instead.
      if (!job.what.file->is_local) io_uring_sqe_set_flags(entry, IOSQE_ASYNC);
      io_uring_sqe_set_data64(entry, id);
      posted_.push_back(id);
    }
    submit();
  }

  void submit() {
    const int taken = posted_.empty() ? 0 : io_uring_submit(&ring_);
    if (taken < 0) return refused();
    under_way_ += static_cast<unsigned>(taken);
    posted_.erase(posted_.begin(), posted_.begin() + taken);
  }

  /// The kernel takes no more: a filter of system calls was set after the ring was made, or memory
  /// is short. Threads do what it has not taken, and all later jobs.
  void refused() {
    is_refused_ = true;
    for (const uint64_t id : std::exchange(posted_, {})) hand_over(id);
    for (const uint64_t id : std::exchange(going_on_, {})) hand_over(id);
    while (waiting_.has_next()) hand_over(waiting_.pop());
  }

  uint64_t next() {
    if (going_on_.empty()) return waiting_.pop();
    const uint64_t id = going_on_.front();
    going_on_.pop_front();
    return id;
  }

  void go_on(uint64_t id) {
    if (is_refused_) return hand_over(id);
    going_on_.push_back(id);
  }

  void moved(uint64_t id, int result) {
    Job& job = *jobs_.find(id);
    const bool is_refused = result == -EINVAL && !job.is_cached_only;
    if (is_refused || result == -EAGAIN || result == -EINTR) {
      job.is_cached_only = job.is_cached_only || is_refused;
      return go_on(id);
    }
    if (result == -EFAULT || result == -ECANCELED) return hand_over(id);
    if (result > 0) job.moved_bytes += static_cast<uint64_t>(result);
    const bool is_whole = job.moved_bytes == job.what.memory.size();
    if (result > 0 && !is_whole) return go_on(id);
    const std::function<void(Cause)> ended = take(id).ended;
    ended(result < 0 ? cause_of_storage(-result) : is_whole ? Cause::kNone : Cause::kOutside);
  }

  /// The rest of a job goes to threads. There memory that is not there is an error still.
  void hand_over(uint64_t id) {
    const uint64_t moved_bytes = jobs_.find(id)->moved_bytes;
    FileJob rest = take(id);
    rest.memory = rest.memory.subspan(moved_bytes);
    rest.position += moved_bytes;
    threads().start(std::move(rest));
  }

  FileJobs& threads() {
    if (threads_ == nullptr) threads_ = open_threads(told_.get());
    return *threads_;
  }

  FileJob take(uint64_t id) {
    FileJob job = std::move(jobs_.find(id)->what);
    jobs_.erase(id);
    waiting_.end(job.file->folder);
    return job;
  }

  io_uring ring_{};
  bool is_open_ = false;
  Descriptor told_;
  fabric::SlotMap<Job> jobs_;
  FolderQueue<uint64_t> waiting_{kOfFolderMax};
  std::deque<uint64_t> going_on_;      // jobs that have begun and are to be posted again
  std::deque<uint64_t> posted_;        // jobs that the kernel has not taken yet
  unsigned under_way_ = 0;             // in the kernel
  bool is_refused_ = false;            // it takes no more
  std::unique_ptr<FileJobs> threads_;  // made with the first job that is handed over
};

}  // namespace

std::unique_ptr<FileJobs> open_ring() { return Ring::open(); }

}  // namespace braid::transfer
