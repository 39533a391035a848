// The raw loop (plain.h) alone, between two processes of this host, as fabtests' fi_rma_bw writes:
// windows of writes with an immediate, each window to its end, all of them from one buffer into
// another, of ordinary memory. rma_bw.py holds the two together.
//
//   plain_loop PROVIDER SIZE_BYTES WINDOW WINDOWS
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "bench/fabric/buffers.h"
#include "bench/fabric/plain.h"

namespace {

using braid::bench::Plain;

constexpr uint64_t kWarmUpWindows = 10;

struct Target {
  char address[128];
  size_t address_bytes;
  Plain::Target memory;
};

std::atomic<bool> is_over = false;

/// Until SIGTERM comes: a killed process would leave its files in /dev/shm.
void be_written_to(int socket, const braid::fabric::ofi::Quirks& quirks, size_t size_bytes) {
  signal(SIGTERM, [](int) { is_over = true; });
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  std::vector<std::byte> memory(size_bytes);
  Plain plain(quirks);
  Target target{};
  target.memory = plain.expose(memory);
  const std::vector<std::byte> address = plain.address();
  target.address_bytes = address.size();
  std::memcpy(target.address, address.data(), address.size());
  if (send(socket, &target, sizeof target, 0) < 0) _exit(1);
  while (!is_over) plain.poll();
}

void measure(const Target& target, const braid::fabric::ofi::Quirks& quirks, uint64_t size_bytes,
             uint64_t window, uint64_t windows) {
  Plain plain(quirks);
  const std::vector<std::byte> memory(size_bytes, std::byte{1});
  plain.read_from(memory);
  const auto* first = reinterpret_cast<const std::byte*>(target.address);
  plain.connect({first, first + target.address_bytes}, target.memory);
  const braid::bench::Load load{
      .size_bytes = size_bytes, .count = window, .depth = window, .is_one_place = true};
  for (uint64_t i = 0; i < kWarmUpWindows; ++i) plain.write(load);
  const uint64_t begin_ns = braid::bench::now_ns();
  for (uint64_t i = 0; i < windows; ++i) plain.write(load);
  const double took_ns = static_cast<double>(braid::bench::now_ns() - begin_ns);
  std::printf("%.2f MB/s\n", static_cast<double>(windows * load.total_bytes()) * 1e3 / took_ns);
}

}  // namespace

int main(int count, char** words) {
  const braid::fabric::ofi::Quirks* quirks =
      count == 5 ? braid::fabric::ofi::find_quirks(words[1]) : nullptr;
  if (quirks == nullptr) {
    std::fprintf(stderr, "plain_loop PROVIDER SIZE_BYTES WINDOW WINDOWS\n");
    return 2;
  }
  const uint64_t size_bytes = std::strtoull(words[2], nullptr, 10);
  const uint64_t window = std::strtoull(words[3], nullptr, 10);
  const uint64_t windows = std::strtoull(words[4], nullptr, 10);
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) != 0) return 1;
  const pid_t process = fork();
  if (process == 0) {
    be_written_to(ends[1], *quirks, size_bytes);
    _exit(0);
  }
  Target target{};
  if (recv(ends[0], &target, sizeof target, 0) != sizeof target) return 1;
  measure(target, *quirks, size_bytes, window, windows);
  kill(process, SIGTERM);
  waitpid(process, nullptr, 0);
  return 0;
}
