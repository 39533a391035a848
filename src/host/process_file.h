// Tells whether another process has ended, for callers that are not its parent.
#pragma once

#include <sys/types.h>

#include "host/file.h"

namespace braid {

/// A pidfd. It always means this process, even if the process's number is used again. Not open:
/// errno says why; ESRCH: there is no such process.
File process_file(pid_t process);
/// True even while the parent has not waited for it.
bool has_ended(const File& process);

}  // namespace braid
