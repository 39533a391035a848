// What must leave no trace in this process is asked in a child of it.
#pragma once

#include <csignal>
#include <functional>
#include <string>

#include "base/status.h"

namespace braid::tools {

/// While it lives, this process can wait for its children. Whoever started this command may have
/// had SIGCHLD ignored, which is inherited: then the kernel keeps no child's end.
class WaitableChildren {
 public:
  WaitableChildren() : before_(std::signal(SIGCHLD, SIG_DFL)) {}
  ~WaitableChildren() { restore(); }
  WaitableChildren(const WaitableChildren&) = delete;
  WaitableChildren& operator=(const WaitableChildren&) = delete;

  /// For a child that becomes another program.
  void restore() const { std::signal(SIGCHLD, before_); }

 private:
  void (*const before_)(int);
};

/// `ask`'s answer, or its error. Libraries that it loads are loaded in the child only.
Result<std::string> ask_in_child(const std::function<Result<std::string>()>& ask);

}  // namespace braid::tools
