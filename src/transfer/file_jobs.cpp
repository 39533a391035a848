#include "transfer/file_jobs.h"

#include <poll.h>

#include <utility>

namespace braid::transfer {

void FileJobs::wait_for_all() {
  constexpr int kLimitMs = 10;
  while (under_way() > 0) {
    pollfd told{descriptor(), POLLIN, 0};
    if (!step() && arm()) (void)poll(&told, 1, kLimitMs);
  }
}

std::unique_ptr<FileJobs> open_file_jobs() {
  std::unique_ptr<FileJobs> ring = open_ring();
  return ring != nullptr ? std::move(ring) : open_threads();
}

}  // namespace braid::transfer
