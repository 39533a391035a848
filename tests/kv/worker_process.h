// The process of a worker (kv_worker.cpp), as its leader's test starts, stops and kills it.
#pragma once

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <string>

#include "kv/worker_messages.h"
#include "support/stop.h"

namespace braid::kv::test {

/// Killed at the end.
class WorkerProcess {
 public:
  /// `faults`: of its server, as BRAID_FAULTS.
  explicit WorkerProcess(uint32_t rank, const std::string& faults = {}) {
    signal(SIGPIPE, SIG_IGN);
    int to[2], from[2];
    if (pipe(to) != 0 || pipe(from) != 0) throw std::runtime_error("no pipes");
    const std::string number = std::to_string(rank);
    process_ = fork();
    if (process_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (!faults.empty()) setenv("BRAID_FAULTS", faults.c_str(), 1);
      dup2(to[0], STDIN_FILENO);
      dup2(from[1], STDOUT_FILENO);
      for (const int each : {to[0], to[1], from[0], from[1]}) close(each);
      execl(BRAID_KV_WORKER, BRAID_KV_WORKER, number.c_str(), nullptr);
      _exit(127);
    }
    close(to[0]);
    close(from[1]);
    to_ = to[1];
    from_ = from[0];
  }
  ~WorkerProcess() {
    end(SIGKILL);
    close(to_);
    close(from_);
  }
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  bool begin(const StepMessage& message) const {
    return send_list(to_, message.commands) && send_list(to_, message.accesses);
  }
  /// None: its process is gone.
  std::optional<StepReply> reply() const {
    StepReply reply;
    const bool is_whole = receive_list(from_, reply.report) && receive_list(from_, reply.right) &&
                          receive_list(from_, reply.error);
    return is_whole ? std::optional(reply) : std::nullopt;
  }
  void stop() const { braid::test::stop(process_); }
  void end(int number) {
    if (process_ <= 0) return;
    kill(process_, number);
    waitpid(process_, nullptr, 0);
    process_ = -1;
  }

 private:
  pid_t process_ = -1;
  int to_ = -1;
  int from_ = -1;
};

}  // namespace braid::kv::test
