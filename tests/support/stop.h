// Stopping a child process.
#pragma once

#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>

namespace braid::test {

/// Returns once every thread of it stands still: after kill alone they run on for a while.
inline void stop(pid_t child) {
  int status = 0;
  if (kill(child, SIGSTOP) == 0) (void)waitpid(child, &status, WUNTRACED);
}

}  // namespace braid::test
