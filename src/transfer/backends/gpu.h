// Slices within this process with GPU memory at one end or both. Rights hold here too. A copy ends
// by itself, however late: it is not posted again elsewhere.
#pragma once

#include <utility>
#include <vector>

#include "transfer/backend.h"
#include "transfer/buffers.h"
#include "transfer/gpu_jobs.h"

namespace braid::transfer {

class GpuBackend final : public Backend {
 public:
  /// Both stay. Whoever has made `jobs` steps them.
  GpuBackend(const Buffers& buffers, GpuJobs& jobs) : buffers_(buffers), jobs_(jobs) {}

  void post(uint32_t way, const Piece& piece) override;
  void probe(uint32_t way, uint64_t id) override;
  void fence(uint32_t way) override;
  bool step(uint64_t now_ns) override;
  std::vector<BackendEvent> take_events() override { return std::exchange(events_, {}); }
  uint64_t next_deadline_ns() const override;
  std::vector<int> wait_descriptors() override { return {}; }
  bool has_to_be_asked() const override { return false; }
  bool arm() override { return events_.empty(); }

 private:
  const Buffers& buffers_;
  GpuJobs& jobs_;
  size_t under_way_ = 0;
  std::vector<uint32_t> fencing_;  // ways, once nothing is under way
  std::vector<BackendEvent> events_;
};

}  // namespace braid::transfer
