#include "fabric/ofi/shm_region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "fabric/ofi/doorbell.h"
#include "host/file.h"

namespace braid::fabric::ofi {

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
