// The ends of a process that run no exit handlers: `_exit` and `_Exit`. (`quick_exit` has handlers
// of its own.) Programs call them from signal handlers and in children of vfork, so nothing here
// allocates, locks or looks anything up.
#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

#include "loader/libc_dlsym.h"
#include "preload/reporter.h"

namespace {

using ExitFunction = void (*)(int);

constinit std::atomic<ExitFunction> next_exit{nullptr};  // another interposer's, or libc's

__attribute__((constructor)) void get_ready_to_end() {
  braid::preload::expect_report();
  next_exit.store(reinterpret_cast<ExitFunction>(braid::loader::libc_dlsym(RTLD_NEXT, "_exit")));
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

// The C library's declarations say that they do not return; clang takes that from the first alone.
void _exit(int status) {
  braid::preload::report_at_exit();
  if (const ExitFunction next = next_exit.load()) next(status);
  while (true) syscall(SYS_exit_group, status);
}

void _Exit(int status) { _exit(status); }

}  // extern "C"
#pragma GCC visibility pop
