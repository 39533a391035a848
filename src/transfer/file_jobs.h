// Reads and writes of files that go on beside everything else: by io_uring, or, where the kernel
// refuses that, by pread and pwrite in threads. Jobs are whole: what ends early is continued, until
// all bytes are moved or the file ends. Not synchronised; nothing blocks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "transfer/codec.h"
#include "transfer/exports.h"

namespace braid::transfer {

struct FileJob {
  bool is_write = false;
  OpenFilePointer file;  ///< held until the end
  MutableBytes memory;   ///< stays as long
  uint64_t position = 0;
  std::function<void(Cause cause)> ended;  ///< kOutside: the file ends before
};

class FileJobs {
 public:
  virtual ~FileJobs() = default;
  virtual void start(FileJob job) = 0;
  /// Tells what has ended. True: something has.
  virtual bool step() = 0;
  /// Readable once something has ended.
  virtual int descriptor() const = 0;
  /// True: whatever ends from now on makes the descriptor readable. False: step first.
  virtual bool arm() = 0;
  virtual size_t under_way() const = 0;
};

/// Null: the kernel refuses io_uring here.
std::unique_ptr<FileJobs> open_ring();
std::unique_ptr<FileJobs> open_threads();
/// The ring, or else the threads.
std::unique_ptr<FileJobs> open_file_jobs();

/// Where the bytes go past the page cache: all of it aligned, and the file system can.
inline bool is_direct(const FileJob& job, uint64_t moved_bytes) {
  constexpr uint64_t kAlignment = 4096;
  const uint64_t address = reinterpret_cast<uint64_t>(job.memory.data()) + moved_bytes;
  const uint64_t rest = job.memory.size() - moved_bytes;
  return job.file->direct.is_open() &&
         (address | (job.position + moved_bytes) | rest) % kAlignment == 0;
}

}  // namespace braid::transfer
