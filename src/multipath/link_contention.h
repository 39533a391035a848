// Which GPUs copy for themselves at the same time. Their links are busy, and relays there would
// only be in the way (MMA section 3.4.2: relays lend idle links). A plan is enqueued whole and
// cannot make way later, so recent copies decide: if the copies of two GPUs have met in one
// direction, neither GPU relays for the other for a while. Copies that meet for the first time
// share all links evenly. GPUs of other processes of the host count too (peer_processes.h).
//
// Threads: any; nothing locks. Times are the driver clock's. A lost update does no harm.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "cuda/kernels/pull.h"
#include "multipath/backoff.h"
#include "multipath/peer_processes.h"
#include "multipath/transfer.h"

namespace braid::multipath {

class LinkContention {
 public:
  explicit LinkContention(PeerProcesses& peers) : peers_(peers) {}

  /// A copy this many times smaller is no reason for a larger one to do without its link.
  static constexpr uint64_t kMuchSmaller = 4;

  /// `gpu` is about to copy `size_bytes` for itself, until about `until_ns`.
  void begin(int gpu, Direction direction, uint64_t size_bytes, uint64_t now_ns,
             uint64_t until_ns) {
    if (!is_known(gpu)) return;
    for (int other = 0; other < kGpus; ++other) {
      if (other == gpu) continue;
      const Own& its = own(other, direction);
      if (now_ns >= its.until_ns) continue;
      const uint64_t its_bytes = its.size_bytes;
      if (its_bytes >= size_bytes / kMuchSmaller) conflict(gpu, other, direction).start(now_ns);
      if (size_bytes >= its_bytes / kMuchSmaller) conflict(other, gpu, direction).start(now_ns);
    }
    peers_.for_each_busy(direction, now_ns, [&](int other, uint64_t its_bytes) {
      if (other != gpu && is_known(other) && its_bytes >= size_bytes / kMuchSmaller)
        conflict(gpu, other, direction).start(now_ns);
    });
    peers_.tell(gpu, direction, size_bytes, until_ns);
    own(gpu, direction).until_ns = until_ns;
    own(gpu, direction).size_bytes = size_bytes;
  }

  /// True if `relay` has copies of its own at the same times as `gpu`.
  bool contend(int gpu, int relay, Direction direction, uint64_t now_ns) {
    return is_known(gpu) && is_known(relay) && conflict(gpu, relay, direction).is_active(now_ns);
  }

 private:
  static constexpr int kGpus = cuda::kMaxPaths;
  struct Own {
    std::atomic<uint64_t> until_ns{0};
    std::atomic<uint64_t> size_bytes{0};
  };
  static bool is_known(int gpu) { return gpu >= 0 && gpu < kGpus; }
  static size_t index(Direction direction) { return static_cast<size_t>(direction); }
  Own& own(int gpu, Direction direction) {
    return own_[static_cast<size_t>(gpu)][index(direction)];
  }
  // Programs that copy to all GPUs at once do so again, for example at each training step or model
  // load.
  Backoff& conflict(int gpu, int other, Direction direction) {
    return conflicts_[static_cast<size_t>(gpu)][static_cast<size_t>(other)][index(direction)];
  }

  PeerProcesses& peers_;
  std::array<std::array<Own, 2>, kGpus> own_;
  std::array<std::array<std::array<Backoff, 2>, kGpus>, kGpus> conflicts_;
};

}  // namespace braid::multipath
