#include "bench/fabric/limited_rails.h"

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <span>

#include "base/median.h"
#include "fabric/engine.h"
#include "fabric/ofi/domain.h"

namespace braid::bench {
namespace {

using fabric::Engine;

constexpr size_t kMemoryBytes = 32 << 20;
constexpr size_t kDepth = 4;
constexpr uint64_t kLimitNs = 60'000'000'000;
constexpr int kSetUpSeconds = 20;

enum Side : int { kWriterSide = 1, kTargetSide = 2 };

/// Zero at first. Each side says where it is, and waits for the other.
struct Shared {
  std::atomic<bool> is_apart[3];  // by side: in a namespace of its own
  std::atomic<bool> has_links, is_up[3], is_ended;
  std::atomic<size_t> address_bytes, descriptor_bytes;
  std::byte address[2048], descriptor[512];
  char failed[256];  // what has gone wrong
  double turns_gbps[64];
  std::atomic<bool> is_measured;
  bool is_verified;
};

uint64_t now_ns() {
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

void* map(size_t size_bytes) {
  void* memory =
      mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

std::string address_of(int rail, int side) {
  return "10.213." + std::to_string(rail) + "." + std::to_string(side);
}

/// "braid0w" on the writer's side, "braid0t" on the target's.
std::string link_of(int rail, int side) {
  return "braid" + std::to_string(rail) + (side == kWriterSide ? "w" : "t");
}

bool succeeds(const std::string& command) {
  return std::system((command + " >/dev/null 2>&1").c_str()) == 0;
}

/// False: the command has failed, and says so in `failed`.
bool run(Shared& shared, const std::string& command) {
  if (succeeds(command)) return true;
  std::snprintf(shared.failed, sizeof shared.failed, "`%s` has failed", command.c_str());
  return false;
}

bool wait_for(const std::atomic<bool>& flag, const Shared& shared) {
  for (int i = 0; i < kSetUpSeconds * 1000 && !flag; ++i) {
    if (shared.failed[0] != 0) return false;
    usleep(1000);
  }
  return flag;
}

// ---- In the two processes

/// This process's end of each link, limited.
bool set_up_links(Shared& shared, const LimitedRailsOptions& options, int side) {
  for (int rail = 0; rail < options.rails; ++rail) {
    const std::string link = link_of(rail, side);
    if (!run(shared, "ip address add " + address_of(rail, side) + "/24 dev " + link) ||
        !run(shared, "tc qdisc add dev " + link + " root tbf rate " +
                         std::to_string(options.megabit) + "mbit burst 256kb latency 50ms") ||
        !run(shared, "ip link set " + link + " up"))
      return false;
  }
  return true;
}

std::unique_ptr<Engine> open_engine(const LimitedRailsOptions& options, int side) {
  std::vector<std::unique_ptr<fabric::Domain>> rails;
  for (int rail = 0; rail < options.rails; ++rail)
    rails.push_back(fabric::ofi::open_domain(
                        fabric::ofi::tcp_quirks(), address_of(rail, side),
                        Admits::kAnybody)  // the other side is of another network namespace
                        .value());
  fabric::EngineOptions engine;
  engine.engine = static_cast<uint64_t>(getpid()) << 32 | (now_ns() & 0xffffffff);
  return Engine::open(std::move(rails), engine).value();
}

void serve(Shared& shared, Engine& engine, std::span<std::byte> memory) {
  const auto address = encode(engine.address());
  std::memcpy(shared.address, address.data(), address.size());
  shared.address_bytes = address.size();
  std::optional<uint64_t> peer;
  while (!peer && !shared.is_ended) {
    engine.step(now_ns());
    peer = engine.accept();
  }
  if (!peer) return;
  const uint64_t region = engine.add_region(memory).value();
  const auto granted = engine.grant(region, *peer, 0, memory.size()).value();
  const auto descriptor = encode(granted.descriptor);
  std::memcpy(shared.descriptor, descriptor.data(), descriptor.size());
  shared.descriptor_bytes = descriptor.size();
  while (!shared.is_ended) engine.step(now_ns());
}

class Writer {
 public:
  Writer(Shared& shared, Engine& engine, std::span<std::byte> source, uint64_t write_bytes)
      : engine_(engine), write_bytes_(write_bytes) {
    while (shared.address_bytes == 0) usleep(1000);
    const auto address = fabric::decode_address({shared.address, shared.address_bytes});
    peer_ = engine.connect(address.value(), now_ns() + kLimitNs).value();
    while (shared.descriptor_bytes == 0) engine.step(now_ns());
    while (engine.peer_state(peer_).value() == fabric::PeerState::kConnecting)
      engine.step(now_ns());
    const auto descriptor =
        fabric::decode_descriptor({shared.descriptor, shared.descriptor_bytes}).value();
    target_ = engine.open_target(descriptor).value();
    region_ = engine.add_region(source).value();
  }

  /// For so long, and until all has arrived. Bandwidth in 10^9 bytes a second; 0: a write failed.
  double write(double seconds, size_t least) {
    const uint64_t begin_ns = now_ns();
    const uint64_t end_ns = begin_ns + static_cast<uint64_t>(seconds * 1e9);
    std::deque<uint64_t> tickets;
    size_t posted = 0;
    while (now_ns() < end_ns || posted < least || !tickets.empty()) {
      const bool goes_on = now_ns() < end_ns || posted < least;
      while (goes_on && tickets.size() < kDepth) {
        const uint64_t offset = posted++ * write_bytes_ % kMemoryBytes;
        tickets.push_back(
            engine_.write(region_, target_, {offset, offset, write_bytes_}, 1, now_ns() + kLimitNs)
                .value());
      }
      engine_.step(now_ns());
      const fabric::TicketState state = engine_.state(tickets.front()).value();
      if (state == fabric::TicketState::kFailed) return 0;
      if (state != fabric::TicketState::kDone) continue;
      engine_.forget(tickets.front());
      tickets.pop_front();
    }
    return static_cast<double>(posted * write_bytes_) / static_cast<double>(now_ns() - begin_ns);
  }

 private:
  Engine& engine_;
  const uint64_t write_bytes_;
  uint64_t peer_ = 0, target_ = 0, region_ = 0;
};

void measure(Shared& shared, const LimitedRailsOptions& options, Engine& engine,
             std::span<std::byte> memory) {
  std::vector<std::byte> source(memory.size());
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::byte>(i * 31 >> 7);
  Writer writer(shared, engine, source, options.size_bytes);
  writer.write(0.5, 1);  // connects all rails
  for (int turn = 0; turn < options.turns; ++turn)
    shared.turns_gbps[turn] = writer.write(options.turn_seconds, 1);
  std::fill(memory.begin(), memory.end(), std::byte{0});
  const bool is_written = writer.write(0, kMemoryBytes / options.size_bytes) > 0;
  shared.is_verified = is_written && std::memcmp(memory.data(), source.data(), memory.size()) == 0;
  shared.is_measured = true;
  shared.is_ended = true;
}

[[noreturn]] void live(Shared& shared, const LimitedRailsOptions& options, int side,
                       std::span<std::byte> memory) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (unshare(CLONE_NEWNET) != 0) {
    std::snprintf(shared.failed, sizeof shared.failed, "there is no namespace for the network");
    _exit(1);
  }
  shared.is_apart[side] = true;
  if (!wait_for(shared.has_links, shared) || !set_up_links(shared, options, side)) _exit(1);
  shared.is_up[side] = true;
  if (!wait_for(shared.is_up[kWriterSide], shared) || !wait_for(shared.is_up[kTargetSide], shared))
    _exit(1);
  {
    const auto engine = open_engine(options, side);
    if (side == kTargetSide)
      serve(shared, *engine, memory);
    else
      measure(shared, options, *engine, memory);
  }
  _exit(0);
}

// ---- In the one that asks

/// Veth pairs between the namespaces of the two processes.
bool add_links(Shared& shared, int rails, pid_t writer, pid_t target) {
  for (int rail = 0; rail < rails; ++rail) {
    const std::string near = link_of(rail, kWriterSide), far = link_of(rail, kTargetSide);
    if (!run(shared, "ip link add " + near + " netns " + std::to_string(writer) +
                         " type veth peer name " + far + " netns " + std::to_string(target)))
      return false;
  }
  return true;
}

/// What this machine cannot do, tried in a namespace that is gone again; empty: it can do all.
std::string missing_here() {
  if (geteuid() != 0) return "limiting rails needs root";
  for (const char* tool : {"ip", "tc"})
    if (!succeeds(std::string("command -v ") + tool))
      return std::string("there is no ") + tool + ": install iproute2";
  constexpr int kNoNamespace = 2, kNoLink = 3, kNoLimit = 4;
  std::fflush(nullptr);
  const pid_t probe = fork();
  if (probe == 0) {
    if (unshare(CLONE_NEWNET) != 0) _exit(kNoNamespace);
    if (!succeeds("ip link add braid0w type veth peer name braid0t")) _exit(kNoLink);
    if (!succeeds("tc qdisc add dev braid0w root tbf rate 1mbit burst 256kb latency 50ms"))
      _exit(kNoLimit);
    _exit(0);
  }
  int status = 0;
  waitpid(probe, &status, 0);
  if (!WIFEXITED(status)) return "";
  switch (WEXITSTATUS(status)) {
    case kNoNamespace: return "this process may not make network namespaces";
    case kNoLink: return "the kernel makes no veth pairs";
    case kNoLimit: return "the kernel has no `tbf`";
    default: return "";
  }
}

/// Until the writer has ended, and the target, which ends when it is told to. One that ends before
/// ends the other. False: one of them did not end well.
bool wait_for_ends(Shared& shared, pid_t writer, pid_t target) {
  int statuses[2] = {-1, -1};
  pid_t waiting[2] = {writer, target};
  while (waiting[0] > 0 || waiting[1] > 0) {
    for (int i = 0; i < 2; ++i) {
      if (waiting[i] <= 0 || waitpid(waiting[i], &statuses[i], WNOHANG) == 0) continue;
      waiting[i] = 0;
      const pid_t other = waiting[1 - i];
      if (other > 0 && (statuses[i] != 0 || !shared.is_ended)) kill(other, SIGKILL);
    }
    usleep(1000);
  }
  return statuses[0] == 0 && statuses[1] == 0;
}

}  // namespace

LimitedRailsResult race_limited_rails(const LimitedRailsOptions& options) {
  LimitedRailsResult result;
  result.sum_gbps = options.rails * options.megabit / 8e3;
  if (result.waived = missing_here(); !result.waived.empty()) return result;
  auto* shared = new (map(sizeof(Shared))) Shared();
  const std::span memory(static_cast<std::byte*>(map(kMemoryBytes)), kMemoryBytes);
  pid_t processes[3] = {};
  for (const int side : {kWriterSide, kTargetSide}) {
    std::fflush(nullptr);
    processes[side] = fork();
    if (processes[side] == 0) live(*shared, options, side, memory);
  }
  if (wait_for(shared->is_apart[kWriterSide], *shared) &&
      wait_for(shared->is_apart[kTargetSide], *shared) &&
      add_links(*shared, options.rails, processes[kWriterSide], processes[kTargetSide]))
    shared->has_links = true;
  const bool is_well = wait_for_ends(*shared, processes[kWriterSide], processes[kTargetSide]);
  if (!is_well || !shared->is_measured) {
    result.failed = shared->failed[0] != 0 ? shared->failed : "a process has ended early";
    return result;
  }
  result.braid_gbps = median({shared->turns_gbps, shared->turns_gbps + options.turns});
  result.ratio = result.braid_gbps / result.sum_gbps;
  result.is_verified = shared->is_verified;
  return result;
}

}  // namespace braid::bench
