#include "fabric/ofi/shm_files.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

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

/// libfabric touches a quarter of the file's pages as soon as it has the size.
int size_where_there_is_room(int file, off_t size_bytes) {
  struct statvfs found {};
  const bool is_full = fstatvfs(file, &found) == 0 && found.f_blocks > 0 &&
                       found.f_bavail * found.f_frsize < static_cast<uint64_t>(size_bytes);
  if (!is_full) return ftruncate_before(file, size_bytes);
  errno = ENOSPC;
  return -1;
}

}  // namespace

Status keep_shm_files(void* libfabric) {
  BRAID_TRY(shm_unlink_before.replace(libfabric, "shm_unlink", unlink_own));
  return ftruncate_before.replace(libfabric, "ftruncate", size_where_there_is_room);
}

}  // namespace braid::fabric::ofi
