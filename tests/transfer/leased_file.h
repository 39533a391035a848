// A file whose `open` waits until a test lets it go on: by a lease (fcntl, F_SETLEASE). And a limit
// of descriptors, by which an engine closes such a file before.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>

#include "support/eventually.h"

namespace braid::transfer::test {

/// While it lives, this process may have few descriptors. An engine that is opened meanwhile, here
/// or in a child, keeps 32 files open that nobody uses.
class FewDescriptors {
 public:
  FewDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit few{256, before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &few);
  }
  ~FewDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;

 private:
  rlimit before_{};
};

/// Nobody else has the file open, and nobody opens it until the end.
class Lease {
 public:
  explicit Lease(const std::filesystem::path& path) {
    signal(SIGIO, SIG_IGN);                    // the kernel says so when somebody waits
    EXPECT_TRUE(braid::test::eventually([&] {  // it may be about to be closed
      file_ = open(path.c_str(), O_RDWR | O_CLOEXEC);
      if (fcntl(file_, F_SETLEASE, F_WRLCK) == 0) return true;
      close(file_);
      return false;
    })) << "somebody has it open";
  }
  ~Lease() { end(); }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  /// Somebody's `open` waits. The kernel ends that after /proc/sys/fs/lease-break-time, 45 s.
  bool holds_somebody() const {
    const int lease = fcntl(file_, F_GETLEASE);
    return lease == F_UNLCK || lease == F_RDLCK;
  }
  void end() {
    if (file_ < 0) return;
    fcntl(file_, F_SETLEASE, F_UNLCK);
    close(file_);
    file_ = -1;
  }

 private:
  int file_ = -1;
};

}  // namespace braid::transfer::test
