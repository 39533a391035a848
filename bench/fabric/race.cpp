#include "bench/fabric/race.h"

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
#include <cstring>
#include <deque>
#include <functional>
#include <numeric>

#include "bench/fabric/plain.h"
#include "fabric/engine.h"
#include "fabric/ofi/domain.h"

namespace braid::bench {
namespace {

using fabric::Engine;

constexpr uint64_t kMemoryBytes = 64 << 20;
constexpr uint64_t kDepth = 64;
constexpr uint64_t kUnderWayBytes = 16 << 20;
constexpr uint64_t kPagesAtOnce = 256;
constexpr uint64_t kWarmUpMax = 16384;
constexpr uint64_t kLimitNs = 60'000'000'000;

uint64_t now_ns() {
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

/// What the two processes share besides the network.
struct Shared {
  std::atomic<int>
      phase;  // the target serves: 0: the engine's greeting, 1: braid, 2: plain, 3: end
  std::atomic<bool> is_ready;
  size_t engine_address_bytes, plain_address_bytes, descriptor_bytes;
  std::byte engine_address[1024], plain_address[128], descriptor[512];
  Plain::Target plain_target;
};

void* map(size_t size_bytes, int kind) {
  void* memory = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, kind | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    std::perror("mmap");
    _exit(1);
  }
  return memory;
}

std::unique_ptr<Engine> open_engine(const fabric::ofi::Quirks& quirks) {
  std::vector<std::unique_ptr<fabric::Domain>> rails;
  rails.push_back(fabric::ofi::open_domain(quirks, "127.0.0.1").value());
  fabric::EngineOptions options;
  options.engine = static_cast<uint64_t>(getpid()) << 32 | (now_ns() & 0xffffffff);
  return Engine::open(std::move(rails), options).value();
}

size_t put(const std::vector<std::byte>& bytes, std::byte* into) {
  std::memcpy(into, bytes.data(), bytes.size());
  return bytes.size();
}

/// The process that is written to.
[[noreturn]] void serve(const RaceOptions& options, Shared& shared, std::span<std::byte> memory) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  auto engine = open_engine(*options.quirks);
  Plain plain(*options.quirks);
  shared.engine_address_bytes = put(encode(engine->address()), shared.engine_address);
  shared.plain_address_bytes = put(plain.address(), shared.plain_address);
  shared.plain_target = plain.expose(memory);
  shared.is_ready = true;
  std::optional<uint64_t> peer;
  while (!peer) {
    engine->step(now_ns());
    peer = engine->accept();
  }
  const uint64_t region = engine->add_region(memory).value();
  const auto granted = engine->grant(region, *peer, 0, memory.size()).value();
  shared.descriptor_bytes = put(encode(granted.descriptor), shared.descriptor);
  for (int phase = 0; phase != 3; phase = shared.phase) {
    if (phase == 2)
      plain.poll();
    else
      engine->step(now_ns());
  }
  _exit(0);
}

class BraidWriter {
 public:
  BraidWriter(const RaceOptions& options, Shared& shared, std::span<std::byte> source)
      : is_paged_(options.is_paged), engine_(open_engine(*options.quirks)) {
    const auto address =
        fabric::decode_address({shared.engine_address, shared.engine_address_bytes});
    const uint64_t peer = engine_->connect(address.value(), now_ns() + kLimitNs).value();
    while (engine_->peer_state(peer).value() == fabric::PeerState::kConnecting)
      engine_->step(now_ns());
    while (shared.descriptor_bytes == 0) engine_->step(now_ns());
    usleep(10'000);  // the other process is not done before it has written the last of it
    target_ =
        engine_
            ->open_target(
                fabric::decode_descriptor({shared.descriptor, shared.descriptor_bytes}).value())
            .value();
    region_ = engine_->add_region(source).value();
  }

  void write(uint64_t size_bytes, uint64_t count, uint64_t depth) {
    const uint64_t at_once = is_paged_ ? kPagesAtOnce : 1;
    const uint64_t places = kMemoryBytes / size_bytes;
    std::deque<uint64_t> tickets;
    for (uint64_t posted = 0; posted < count || !tickets.empty();) {
      while (posted < count && tickets.size() * at_once < std::max(depth, at_once)) {
        tickets.push_back(is_paged_ ? post_pages(size_bytes, posted % places, at_once)
                                    : post(size_bytes, posted % places));
        posted += at_once;
      }
      engine_->step(now_ns());
      while (!tickets.empty() && has_ended(tickets.front())) tickets.pop_front();
    }
  }

 private:
  uint64_t post(uint64_t size_bytes, uint64_t place) {
    const uint64_t offset = place * size_bytes;
    return engine_->write(region_, target_, {offset, offset, size_bytes}, 1, now_ns() + kLimitNs)
        .value();
  }
  uint64_t post_pages(uint64_t size_bytes, uint64_t first, uint64_t count) {
    fabric::Pages pages{{}, size_bytes, 0};
    pages.indices.resize(count);
    std::iota(pages.indices.begin(), pages.indices.end(), static_cast<uint32_t>(first));
    return engine_->write_pages(region_, target_, size_bytes, pages, pages, 1, now_ns() + kLimitNs)
        .value();
  }
  bool has_ended(uint64_t ticket) {
    const fabric::TicketState state = engine_->state(ticket).value();
    if (state == fabric::TicketState::kPending) return false;
    if (state != fabric::TicketState::kDone) {
      std::fprintf(stderr, "a write has failed\n");
      _exit(1);
    }
    engine_->forget(ticket);
    return true;
  }

  bool is_paged_;
  std::unique_ptr<Engine> engine_;
  uint64_t target_ = 0;
  uint64_t region_ = 0;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double gbps_of(const std::function<void()>& moving, uint64_t size_bytes) {
  const uint64_t begin_ns = now_ns();
  moving();
  return static_cast<double>(size_bytes) / static_cast<double>(now_ns() - begin_ns);
}

}  // namespace

uint64_t largest_size_bytes(bool is_paged) {
  return is_paged ? kMemoryBytes / kPagesAtOnce : kMemoryBytes;
}

std::vector<RaceResult> race(const RaceOptions& options) {
  auto* shared = new (map(sizeof(Shared), MAP_SHARED)) Shared();
  const std::span memory(static_cast<std::byte*>(map(kMemoryBytes, MAP_SHARED)), kMemoryBytes);
  const std::span source(static_cast<std::byte*>(map(kMemoryBytes, MAP_PRIVATE)), kMemoryBytes);
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::byte>(i * 31 >> 7);
  const pid_t target = fork();
  if (target == 0) serve(options, *shared, memory);
  while (!shared->is_ready) usleep(1000);
  BraidWriter braid(options, *shared, source);
  Plain plain(*options.quirks);
  plain.read_from(source);
  plain.connect({shared->plain_address, shared->plain_address + shared->plain_address_bytes});

  std::vector<RaceResult> results;
  for (const uint64_t size_bytes : options.sizes_bytes) {
    const uint64_t depth = std::clamp<uint64_t>(kUnderWayBytes / size_bytes, 1,
                                                options.is_paged ? kPagesAtOnce : kDepth);
    const auto by_braid = [&](uint64_t count) {
      shared->phase = 1;
      return gbps_of([&] { braid.write(size_bytes, count, depth); }, count * size_bytes);
    };
    const auto by_plain = [&](uint64_t count) {
      shared->phase = 2;
      return gbps_of(
          [&] { plain.write(shared->plain_target, size_bytes, kMemoryBytes, count, depth); },
          count * size_bytes);
    };
    RaceResult result{size_bytes};
    const uint64_t unit = options.is_paged ? kPagesAtOnce : 1;
    const uint64_t places = kMemoryBytes / size_bytes;
    uint64_t count = std::clamp<uint64_t>(places / 4, unit, kWarmUpMax) / unit * unit;
    const double first_gbps = by_plain(count);  // also opens connections, and touches memory
    by_braid(count);
    const double wanted = first_gbps * 1e9 * options.turn_seconds / static_cast<double>(size_bytes);
    count = std::max<uint64_t>(static_cast<uint64_t>(wanted) / unit, 1) * unit;
    std::vector<double> braids, plains, ratios;
    for (int turn = 0; turn < options.turns; ++turn) {
      braids.push_back(by_braid(count));
      plains.push_back(by_plain(count));
      ratios.push_back(braids.back() / plains.back());
    }
    std::fill(memory.begin(), memory.end(), std::byte{0});
    const uint64_t all = places / unit * unit;
    by_braid(all);
    result.is_verified = std::memcmp(memory.data(), source.data(), all * size_bytes) == 0;
    result.braid_gbps = median(braids);
    result.plain_gbps = median(plains);
    result.ratio = median(ratios);
    results.push_back(result);
  }
  shared->phase = 3;
  waitpid(target, nullptr, 0);
  return results;
}

}  // namespace braid::bench
