#include "host/process_file.h"

#include <poll.h>
#include <sys/syscall.h>

namespace braid {

File process_file(pid_t process) {
  return File(static_cast<int>(syscall(SYS_pidfd_open, process, 0)));
}

/// A pidfd can be read once the process has ended.
bool has_ended(const File& process) {
  pollfd look{process.get(), POLLIN, 0};
  return process.is_open() && ::poll(&look, 1, 0) > 0;
}

}  // namespace braid
