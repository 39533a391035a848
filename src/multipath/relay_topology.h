// The GPUs of this process, and which of them may relay for which, by the hardware and the user's
// choice. Which relays are open is in context_registry.h. Found once, then constant.
#pragma once

#include <string>
#include <vector>

#include "base/options.h"
#include "base/status.h"
#include "cuda/driver.h"
#include "multipath/access.h"

namespace braid::multipath {

/// True if the relay reaches the target's memory with native atomics (its blocks take slice numbers
/// from a counter there), and any process may use it. NVLink has atomics, PCIe peer access has not.
bool can_relay(const cuda::Driver& driver, CUdevice relay, CUdevice target);

class RelayTopology {
 public:
  /// Asks the driver. Fails when the user names GPUs that this process does not see. No GPU relays
  /// under a tool that does not bear it (cuda/tools.h).
  static Result<RelayTopology> find(const cuda::Driver& driver, const Options& options);

  int gpu_count() const { return static_cast<int>(devices_.size()); }
  CUdevice device(int gpu) const { return devices_[static_cast<size_t>(gpu)]; }
  /// The ordinal of a device; -1 if it is not one of this process.
  int gpu_of(CUdevice device) const;

  /// GPUs that may relay for the target.
  GpuSet of(int target) const { return of_target_[static_cast<size_t>(target)]; }
  /// GPUs that may relay for any target. If there are none, braid cannot gain here.
  GpuSet all() const { return all_; }
  /// Why no GPU may relay, whatever the hardware; empty if there is no such reason.
  const std::string& problem() const { return problem_; }
  /// Which GPUs do not relay because their compute mode (exclusive-process, prohibited) keeps them
  /// for others; empty if there are none.
  const std::string& reserved() const { return reserved_; }

  /// GPUs of the same socket.
  GpuSet neighbours_of(int gpu) const {
    GpuSet near = 0;
    for (int other = 0; other < gpu_count(); ++other)
      if (are_neighbours(gpu, other)) near |= gpu_bit(other);
    return near;
  }
  /// True if both GPUs are on one socket: such a relay crosses no link between sockets.
  bool are_neighbours(int gpu, int other) const {
    return numa_nodes_[static_cast<size_t>(gpu)] == numa_nodes_[static_cast<size_t>(other)];
  }

 private:
  Status list_devices(const cuda::Driver& driver);
  Status check(const RelayChoice& choice) const;
  void note_reserved(const cuda::Driver& driver, const RelayChoice& choice);

  std::vector<CUdevice> devices_;  // by GPU, as the others
  std::vector<int> numa_nodes_;
  std::vector<GpuSet> of_target_;
  GpuSet all_ = 0;
  std::string problem_;
  std::string reserved_;
};

}  // namespace braid::multipath
