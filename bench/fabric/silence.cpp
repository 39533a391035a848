// What an engine of the library costs, and how soon it answers, when little happens:
//
//   fabric_silence [PROVIDER]
//
// Two processes: one grants memory and does nothing, the other writes. CPU time of each while both
// are silent; the first write of 64 bytes after a second of silence, until it is visible at the
// target; and throughput while a callback of the target's sleeps, against throughput without.
#include <braid/fabric.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>
#include <thread>
#include <vector>

namespace {

using braid::Fabric;
using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr uint64_t kMemoryBytes = 16 << 20;
constexpr uint64_t kSliceBytes = 64 << 10;
constexpr size_t kDepth = 32;
constexpr int kTurns = 7;
constexpr auto kLimit = seconds(60);

template <typename T>
T must(braid::Result<T> result) {
  if (result.ok()) return std::move(result).value();
  std::fprintf(stderr, "%s\n", result.status().message().c_str());
  std::exit(1);
}

/// A message of the other process; both ends live on one socket of packets.
std::vector<std::byte> hear(int socket) {
  std::vector<std::byte> bytes(4096);
  const ssize_t size_bytes = recv(socket, bytes.data(), bytes.size(), 0);
  if (size_bytes <= 0) std::exit(1);
  bytes.resize(static_cast<size_t>(size_bytes));
  return bytes;
}
void say(int socket, const std::vector<std::byte>& bytes) {
  if (send(socket, bytes.data(), bytes.size(), 0) < 0) std::exit(1);
}

double cpu_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto of = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return of(used.ru_utime) + of(used.ru_stime);
}

double cores_while_silent() {
  constexpr int kSeconds = 5;
  const double before = cpu_seconds();
  std::this_thread::sleep_for(seconds(kSeconds));
  return (cpu_seconds() - before) / kSeconds;
}

/// Does nothing but what it is told: 's': says what silence costs; 'c': has a callback that sleeps
/// at the next immediate.
[[noreturn]] void own(const std::string& provider, int socket) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  Fabric fabric = must(Fabric::open({provider}));
  const auto region = must(fabric.allocate_memory(kMemoryBytes)).region;
  say(socket, must(fabric.address()));
  const auto peer = must(fabric.accept(kLimit));
  say(socket, must(fabric.grant(region, *peer, 0, kMemoryBytes)).descriptor);
  for (;;) {
    const auto order = hear(socket);
    const uint32_t immediate = must(fabric.acquire_immediate());
    double cores = 0;
    if (order[0] == std::byte{'s'}) cores = cores_while_silent();
    if (order[0] == std::byte{'c'})
      (void)fabric.on_count(immediate, 1,
                            [](uint64_t) { std::this_thread::sleep_for(seconds(1)); });
    std::vector<std::byte> answer(sizeof cores + sizeof immediate);
    std::memcpy(answer.data(), &cores, sizeof cores);
    std::memcpy(answer.data() + sizeof cores, &immediate, sizeof immediate);
    say(socket, answer);
  }
}

class Writer {
 public:
  Writer(const std::string& provider, int socket)
      : socket_(socket), fabric_(must(Fabric::open({provider}))), source_(kMemoryBytes) {
    const auto address = hear(socket);
    (void)must(fabric_.connect(address, kLimit));
    target_ = must(fabric_.open_target(hear(socket)));
    region_ = must(fabric_.add_region(source_.data(), source_.size()));
  }

  void measure_silence() {
    say(socket_, {std::byte{'s'}});
    const double here = cores_while_silent();
    double there = 0;
    std::memcpy(&there, hear(socket_).data(), sizeof there);
    std::printf("silent: writer %.4f, target %.4f of a core\n", here, there);
  }

  void measure_first_write() {
    std::vector<double> latencies_us;
    for (int turn = 0; turn < 2 * kTurns; ++turn) {
      std::this_thread::sleep_for(seconds(1));
      const auto begin = steady_clock::now();
      finish(post(0, 64, std::nullopt));
      latencies_us.push_back(
          std::chrono::duration<double, std::micro>(steady_clock::now() - begin).count());
    }
    show("first write of 64 bytes after a second, us", latencies_us);
  }

  void measure_callback() {
    std::vector<double> quiet, slept, ratios;
    for (int turn = 0; turn < kTurns; ++turn) {
      quiet.push_back(gbps(std::nullopt));
      say(socket_, {std::byte{'c'}});
      uint32_t immediate = 0;
      std::memcpy(&immediate, hear(socket_).data() + sizeof(double), sizeof immediate);
      slept.push_back(gbps(immediate));
      ratios.push_back(slept.back() / quiet.back());
    }
    show("64 KiB writes, GB/s", quiet);
    show("while a callback of the target's sleeps, GB/s", slept);
    show("ratio", ratios);
  }

 private:
  Fabric::Ticket post(uint64_t offset, uint64_t size_bytes, std::optional<uint32_t> immediate) {
    return must(fabric_.write(region_, target_, {offset, offset, size_bytes}, immediate, kLimit));
  }
  void finish(Fabric::Ticket ticket) {
    if (must(fabric_.wait(ticket, kLimit)) == Fabric::TicketState::kDone)
      return fabric_.forget(ticket);
    std::fprintf(stderr, "a write has failed\n");
    std::exit(1);
  }

  /// Over three quarters of a second: a callback that sleeps does so all the while.
  double gbps(std::optional<uint32_t> immediate) {
    std::deque<Fabric::Ticket> tickets;
    uint64_t posted = 0;
    const auto begin = steady_clock::now();
    const auto end = begin + std::chrono::milliseconds(750);
    while (steady_clock::now() < end) {
      while (tickets.size() < kDepth) {
        tickets.push_back(
            post(posted % (kMemoryBytes / kSliceBytes) * kSliceBytes, kSliceBytes, immediate));
        ++posted;
      }
      finish(tickets.front());
      tickets.pop_front();
    }
    for (; !tickets.empty(); tickets.pop_front()) finish(tickets.front());
    const double elapsed_ns =
        std::chrono::duration<double, std::nano>(steady_clock::now() - begin).count();
    return static_cast<double>(posted * kSliceBytes) / elapsed_ns;
  }

  static void show(const char* what, std::vector<double> values) {
    std::sort(values.begin(), values.end());
    std::printf("%s: %.3f (%.3f-%.3f)\n", what, values[values.size() / 2], values.front(),
                values.back());
    std::fflush(stdout);
  }

  int socket_;
  Fabric fabric_;
  std::vector<std::byte> source_;
  Fabric::Target target_{};
  Fabric::Region region_{};
};

}  // namespace

int main(int argc, char** argv) {
  const std::string provider = argc > 1 ? argv[1] : "tcp;ofi_rxm";
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) != 0) return 1;
  const pid_t owner = fork();
  if (owner == 0) own(provider, ends[1]);
  {
    Writer writer(provider, ends[0]);
    writer.measure_silence();
    writer.measure_first_write();
    writer.measure_callback();
  }
  kill(owner, SIGKILL);
  waitpid(owner, nullptr, 0);
}
