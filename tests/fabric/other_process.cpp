#include "fabric/other_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace braid::fabric::test {
namespace {

constexpr int kPatienceSeconds = 60;
// For its end.
constexpr int kBetweenLooksUs = 2'000;
constexpr int kLooksMax = 10'000;

}  // namespace

std::shared_ptr<OtherProcess> OtherProcess::get() {
  static std::shared_ptr<OtherProcess> process;
  if (process == nullptr || process->is_lost_)
    process.reset(new OtherProcess());  // owner: the pointer around it
  return process;
}

OtherProcess::OtherProcess() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    throw std::runtime_error("no socket for the other process");
  socket_ = File(ends[0]);
  const File others(ends[1]);
  const timeval patience{kPatienceSeconds, 0};
  setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  setsockopt(ends[0], SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  const std::string number = std::to_string(ends[1]);
  process_ = fork();
  if (process_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    fcntl(ends[1], F_SETFD, 0);
    execl(BRAID_FABRIC_TARGET, BRAID_FABRIC_TARGET, number.c_str(), nullptr);
    _exit(127);
  }
}

OtherProcess::~OtherProcess() {
  socket_ = File();  // asks it to end
  for (int looks = is_lost_ ? 0 : kLooksMax; looks > 0; --looks) {
    if (waitpid(process_, nullptr, WNOHANG) != 0) return;
    usleep(kBetweenLooksUs);
  }
  kill(process_, SIGKILL);
  waitpid(process_, nullptr, 0);
}

Parcel OtherProcess::ask(Call call, const Parcel& question) {
  const auto exchange = [&] {
    try {
      send_parcel(socket_.get(), Parcel().put(call).put_bytes(question.all()));
      return receive_parcel(socket_.get());
    } catch (const std::exception&) {
      is_lost_ = true;
      throw;
    }
  };
  Parcel answer = exchange();
  if (!answer.take<bool>()) throw std::runtime_error("the other process: " + answer.take_text());
  return answer;
}

}  // namespace braid::fabric::test
