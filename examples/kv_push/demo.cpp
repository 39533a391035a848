#include "demo.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

namespace kv_push {
namespace {

/// A prefiller in a process of its own, this program once more.
class Child {
 public:
  Child(const std::string& name, const std::string& decoder, const DemoOptions& options) {
    std::fflush(nullptr);
    process_ = fork();
    if (process_ < 0) die("there is no further process to be had");
    if (process_ > 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const char* words[] = {"kv_push",    "prefill", "127.0.0.1", decoder.c_str(), "--name",
                           name.c_str(), nullptr,   nullptr,     nullptr};
    size_t count = 6;
    if (options.has_gpu) words[count++] = "--gpu";
    if (options.corrupts) words[count++] = "--corrupt";
    execv("/proc/self/exe", const_cast<char**>(words));
    _exit(127);
  }
  void leave() { (void)kill(process_, SIGTERM); }
  void kill_it() { (void)kill(process_, SIGKILL); }
  /// Its exit status; of one that was killed, minus the signal.
  int wait() {
    int status = 0;
    (void)waitpid(process_, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  pid_t process_ = 0;
};

void expect(bool is_so, const char* what) {
  if (!is_so) die(std::string("not so: ") + what);
}

void say(const char* what) {
  std::printf("-- %s\n", what);
  std::fflush(stdout);
}

}  // namespace

void run_demo(Fabric& fabric, Device& device, const DemoOptions& options) {
  const std::string address = to_hex(must(fabric.address()));
  Decoder decoder(fabric, device);

  say("a prefiller joins, and pushes the pages of each layer as it computes them");
  Child a("A", address, options);
  decoder.wait_for_prefillers(1);
  expect(decoder.decode({{16}, {1}, {7}, {12}}).decoded == 4, "all are decoded");

  say("a request is cancelled in the middle; the next ones take its pages");
  const Request cancelled{16, 20'000, true};
  expect(decoder.decode({cancelled}).cancelled == 1, "the prefiller has confirmed");
  expect(decoder.decode({{16}, {16}}).decoded == 2, "all are decoded");

  say("another prefiller joins, and the first one leaves while requests are dispatched to it");
  Child b("B", address, options);
  decoder.wait_for_prefillers(2);
  bool is_leaving = false;
  const auto leave = [&](const std::string& prefiller) {
    if (prefiller == "A" && !is_leaving) a.leave();
    is_leaving = is_leaving || prefiller == "A";
  };
  const Decoder::Tally left = decoder.decode(std::vector<Request>(8, {8, 2'000}), leave);
  expect(left.decoded == 8 && left.lost == 0, "whoever leaves ends what it has begun");
  expect(is_leaving, "the first one was dispatched to");
  decoder.wait_for_prefillers(1);
  expect(a.wait() == 0, "it has left by itself");

  say("a third one joins, and is killed in the middle of a request");
  Child c("C", address, options);
  decoder.wait_for_prefillers(2);
  const auto kill_c = [&](const std::string& prefiller) {
    if (prefiller == "C") c.kill_it();
  };
  const Decoder::Tally killed = decoder.decode(std::vector<Request>(6, {16, 10'000}), kill_c);
  expect(killed.decoded == 6 && killed.lost > 0, "its requests went to the other one");
  expect(c.wait() == -SIGKILL, "it was killed");
  expect(decoder.decode({{16}, {16}, {16}}).decoded == 3, "the other one goes on");

  decoder.finish();
  expect(b.wait() == 0, "it was sent away");
  say("every byte is right");
}

}  // namespace kv_push
