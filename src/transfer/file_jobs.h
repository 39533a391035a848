// Asynchronous reads and writes of files: by io_uring, or, if the kernel refuses that, by pread and
// pwrite in threads. A short read or write is continued until all bytes of its job are moved or the
// file ends. Not synchronised; nothing blocks but wait_for_all.
#pragma once

#include <sys/resource.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "transfer/codec.h"
#include "transfer/exports.h"

namespace braid::transfer {

struct FileJob {
  bool is_write = false;
  OpenFilePointer file;  ///< held until the end
  MutableBytes memory;   ///< must stay until the end, too
  uint64_t position = 0;
  std::function<void(Cause cause)> ended;  ///< kOutside: the file ends earlier
  uint64_t tag = 0;                        ///< for take_back; 0: none
};

class FileJobs {
 public:
  virtual ~FileJobs() = default;
  virtual void start(FileJob job) = 0;
  /// Drops the job with this tag, if it has not begun: other jobs of its folder are before it. Then
  /// its `ended` is not called. False: it has begun, or there is none.
  virtual bool take_back(uint64_t tag) = 0;
  /// Calls `ended` of jobs that have ended. True: a job has ended.
  virtual bool step() = 0;
  /// Readable once a job has ended.
  virtual int descriptor() const = 0;
  /// True: every job that ends from now on makes the descriptor readable. False: step first.
  virtual bool arm() = 0;
  virtual size_t under_way() const = 0;
  /// Returns once all have ended, and `ended` of each was called.
  void wait_for_all();
};

/// The limit of positions in files.
inline constexpr uint64_t kFileBytesMax = uint64_t{1} << 62;

/// Whether this process may write a file up to there (`ulimit -f`). Who starts a job that writes
/// asks first: the kernel ends a process that tries, by SIGXFSZ.
inline bool is_within_file_limit(uint64_t end_bytes) {
  rlimit limit{};
  return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
         end_bytes <= limit.rlim_cur;
}

/// Null: the kernel refuses io_uring here.
std::unique_ptr<FileJobs> open_ring();
std::unique_ptr<FileJobs> open_threads();
/// Their descriptor is `told`, an eventfd of the caller, who may tell others by it too.
std::unique_ptr<FileJobs> open_threads(int told);
/// The ring if the kernel allows it, else the threads.
std::unique_ptr<FileJobs> open_file_jobs();

/// Whether the rest of a job bypasses the page cache: all of it is aligned, and the file system
/// can.
inline bool is_direct(const FileJob& job, uint64_t moved_bytes) {
  constexpr uint64_t kAlignment = 4096;
  const uint64_t address = reinterpret_cast<uint64_t>(job.memory.data()) + moved_bytes;
  const uint64_t rest = job.memory.size() - moved_bytes;
  return job.file->direct.is_open() &&
         (address | (job.position + moved_bytes) | rest) % kAlignment == 0;
}

}  // namespace braid::transfer
