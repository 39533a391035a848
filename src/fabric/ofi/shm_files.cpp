#include "fabric/ofi/shm_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "base/try.h"
#include "fabric/ofi/imports.h"

namespace braid::fabric::ofi {
namespace {

constinit Before<int(const char*)> shm_unlink_before;
constinit Before<int(int, off_t)> ftruncate_before;

/// Files are named "PROCESS:USER:NUMBER". 0: the name begins with no number.
pid_t process_in(const char* name) {
  pid_t process = 0;
  for (; *name >= '0' && *name <= '9'; ++name) process = 10 * process + (*name - '0');
  return process;
}

/// Signal handlers call it, so it takes no lock and allocates nothing.
int unlink_own(const char* name) {
  const pid_t process = process_in(name);
  return process == 0 || process == getpid() ? shm_unlink_before(name) : 0;
}

/// A signal ends an allocation early. With signals all the time the file stays sparse.
int allocate(int file, off_t size_bytes) {
  constexpr int kTriesMax = 100;
  int error = EINTR;
  for (int tries = 0; error == EINTR && tries < kTriesMax; ++tries)
    error = posix_fallocate(file, 0, size_bytes);
  return error;
}

int size_whole(int file, off_t size_bytes) {
  if (ftruncate_before(file, size_bytes) != 0) return -1;
  if (allocate(file, size_bytes) != ENOSPC) return 0;
  errno = ENOSPC;
  return -1;
}

}  // namespace

Status keep_shm_files(void* libfabric) {
  BRAID_TRY(shm_unlink_before.replace(libfabric, "shm_unlink", unlink_own));
  return ftruncate_before.replace(libfabric, "ftruncate", size_whole);
}

}  // namespace braid::fabric::ofi
