// How to learn that another process has ended, without being its parent.
#pragma once

#include <sys/types.h>

#include "host/file.h"

namespace braid {

/// A pidfd, which holds the process's number for itself until it is closed. Not open: errno says
/// why; ESRCH: there is no such process.
File process_file(pid_t process);
/// Also while its parent has not waited for it.
bool has_ended(const File& process);

}  // namespace braid
