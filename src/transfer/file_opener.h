// Opens and closes files in threads: a file system may not answer for long (an NFS server that is
// away), and meanwhile nothing else may wait. The threads are made when they are needed. Few of
// them work for one folder or for one peer at a time, so that a folder which does not answer, or a
// peer that asks for much, leaves threads to the others.
//
// A thread that a call holds up when this object goes is left behind. It keeps what it needs, and
// ends once the call returns. Not synchronised; nothing blocks but the destructor.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "transfer/types.h"

namespace braid::transfer {

class FileOpener {
 public:
  static constexpr size_t kThreadsMax = 32;
  static constexpr size_t kOfFolderMax = 8;  ///< threads that work for one folder at a time
  static constexpr size_t kOfPeerMax = 4;    ///< and for one peer
  /// How long the destructor waits for threads that are still in a call.
  static constexpr uint64_t kLeaveMs = 200;

  struct Work {
    Incarnation peer{};
    uint64_t folder = 0;
    bool is_closing = false;  ///< done even if nobody waits for it any more, and for no peer
    std::function<void()> run;
    /// Called by `step`. False: the system allows no thread, and `run` was not called.
    std::function<void(bool was_run)> ended;
  };

  FileOpener();
  ~FileOpener();
  FileOpener(const FileOpener&) = delete;
  FileOpener& operator=(const FileOpener&) = delete;

  void start(Work work);
  /// Calls `ended` of what has ended. True: something has.
  bool step();
  /// Readable once something has ended.
  int descriptor() const;
  /// True: whatever ends from now on makes the descriptor readable. False: step first.
  bool arm();
  size_t under_way() const { return under_way_; }

 private:
  struct State;
  struct Thread {
    std::thread thread;
    std::shared_ptr<bool> is_over;  // under the state's mutex
  };
  bool add_thread();

  std::shared_ptr<State> state_;  // the threads hold it too
  size_t under_way_ = 0;
  std::vector<Thread> threads_;
};

}  // namespace braid::transfer
