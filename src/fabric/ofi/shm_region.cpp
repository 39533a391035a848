#include "fabric/ofi/shm_region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "fabric/ofi/doorbell.h"
#include "host/file.h"

namespace braid::fabric::ofi {
namespace {

constexpr uint64_t kShortsAtOnce = 64;

/// Whether the parts follow each other as in libfabric 1.17.
bool is_as_known(const RegionHead& head) {
  return head.shorts > 0 && head.longs > 0 && head.shorts_at < head.longs_at &&
         head.longs_at < head.peers_at && head.peers_at < head.size_bytes;
}

/// A signal ends an allocation early. With signals all the time the file stays sparse.
bool has_room(int file, uint64_t at, uint64_t size_bytes) {
  constexpr int kTriesMax = 100;
  int error = EINTR;
  if (size_bytes == 0) return true;
  for (int tries = 0; error == EINTR && tries < kTriesMax; ++tries)
    error = posix_fallocate(file, static_cast<off_t>(at), static_cast<off_t>(size_bytes));
  return error != ENOSPC;
}

}  // namespace

Status allocate_region(Bytes endpoint, bool is_written_to) {
  const std::string name = file_of(endpoint);
  const File file(shm_open(name.c_str(), O_RDWR | O_CLOEXEC, 0));
  RegionHead head{};
  if (!file.is_open() || !read_region(file.get(), head) || !is_as_known(head)) return {};
  const uint64_t short_bytes = (head.longs_at - head.shorts_at) / head.shorts;
  const uint64_t long_bytes = (head.peers_at - head.longs_at) / head.longs;
  const uint64_t shorts = is_written_to ? std::min(kShortsAtOnce, head.shorts) : 0;
  const uint64_t longs = is_written_to ? std::min<uint64_t>(head.buffers_max, head.longs) : 0;
  if (has_room(file.get(), 0, head.shorts_at + shorts * short_bytes) &&
      has_room(file.get(), head.longs_at, longs * long_bytes))
    return {};
  return Status::error("shm: /dev/shm has no room for another endpoint",
                       "Remove files there, or make it larger (containers: --shm-size)");
}

Result<RegionHead> read_region(Bytes endpoint) {
  RegionHead head{};
  const std::string name = file_of(endpoint);
  const File file(shm_open(name.c_str(), O_RDONLY | O_CLOEXEC, 0));
  if (!file.is_open())
    return Status::error("shm: the file of its own endpoint: " + std::string(std::strerror(errno)));
  if (!read_region(file.get(), head))
    return Status::error("shm: the file of its own endpoint is not as libfabric makes it");
  return head;
}

bool read_region(int file, RegionHead& head) {
  struct stat about {};
  return fstat(file, &about) == 0 && pread(file, &head, sizeof head, 0) == ssize_t{sizeof head} &&
         head.process != 0 && head.size_bytes >= sizeof head &&
         head.size_bytes <= static_cast<uint64_t>(about.st_size);
}

}  // namespace braid::fabric::ofi
