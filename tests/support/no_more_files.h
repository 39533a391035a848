// A process that has used up its descriptors.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

namespace braid::test {

/// While it lives, this process can open no more files.
class NoMoreFiles {
 public:
  NoMoreFiles() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const int unused = dup(0);  // the lowest
    close(unused);
    const rlimit limit{static_cast<rlim_t>(unused), before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  ~NoMoreFiles() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

}  // namespace braid::test
