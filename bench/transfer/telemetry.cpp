// What telemetry costs: the nanoseconds of CPU in which what is known of its way is brought up to
// date once a slice has landed. That is what Scheduler::measure and posting_ended do beside the
// bookkeeping of requests, by the same code (policy/lane.h, policy/health.h): the rates of the path
// and of the rails at its ends, the base latency, the health, and the counts.
//
//   transfer_telemetry [SLICES]
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "base/clock.h"
#include "transfer/policy/health.h"
#include "transfer/policy/lane.h"

using namespace braid;
using namespace braid::transfer;

namespace {

constexpr int kTurns = 9;
constexpr uint64_t kSliceBytes = 64 << 10;
constexpr uint64_t kSliceNs = 6'500;  // at 10 GB/s
constexpr uint64_t kBaseNs = 20'000;
constexpr uint64_t kAloneEvery = 16;  // the first slice of a batch finds an idle path

struct Measured {
  std::array<Lane, 3> lanes{Lane(10), Lane(10), Lane(10)};  // of a path and the rails at its ends
  BaseLatency base{kBaseNs};
  Health health;
  uint64_t slices = 0, bytes = 0, delivered_ns = 0;

  Measured() {
    for (Lane& lane : lanes) lane.bytes = kSliceBytes;  // the slice that is about to land
  }

  void delivered(uint64_t posted_ns, uint64_t now_ns) {
    measure_base(base, lanes[0], kSliceBytes, posted_ns, now_ns);
    for (Lane& lane : lanes) lane.delivered(kSliceBytes, posted_ns, base.ns(), now_ns);
    health.delivered(now_ns);
    ++slices;
    bytes += kSliceBytes;
    delivered_ns = now_ns;
  }
};

double turn_ns(uint64_t slices) {
  Measured measured;
  uint64_t now_ns = 1'000'000;
  const uint64_t begun_ns = monotonic_ns();
  for (uint64_t i = 0; i < slices; ++i) {
    const bool is_alone = i % kAloneEvery == 0;  // else it has waited for the one before
    now_ns += is_alone ? kBaseNs + kSliceNs : kSliceNs;
    measured.delivered(now_ns - kBaseNs - kSliceNs - (is_alone ? 0 : kSliceNs), now_ns);
  }
  const double ns = static_cast<double>(monotonic_ns() - begun_ns);
  if (measured.bytes != slices * kSliceBytes || measured.lanes[2].gbps(now_ns) <= 0)
    std::abort();  // so that nothing is left out
  return ns / static_cast<double>(slices);
}

}  // namespace

int main(int count, char** arguments) {
  const uint64_t slices = count > 1 ? std::strtoull(arguments[1], nullptr, 10) : 1'000'000;
  std::vector<double> turns(kTurns);
  std::generate(turns.begin(), turns.end(), [&] { return turn_ns(slices); });
  std::sort(turns.begin(), turns.end());
  std::printf("telemetry: %.1f ns a slice, %.1f to %.1f in %d turns\n", turns[kTurns / 2],
              turns.front(), turns.back(), kTurns);
}
