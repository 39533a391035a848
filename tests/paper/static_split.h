// The paper's comparison in figure 11: a copy whose shares of the direct path and of one relay are
// settled in advance. Copy engines have it as a policy; for kernels it is two transfers of one path
// each, since pulling is what their common counter is for.
//
// Not thread-safe. Destroy it when its copies have ended.
#pragma once

#include <memory>

#include "multipath/copy_engine/mover.h"
#include "multipath/endpoint.h"
#include "multipath/lane.h"
#include "multipath/ticket.h"

namespace braid::paper {

struct Shares {
  uint32_t direct;
  uint32_t relayed;
};

/// Host to device; the pieces of the copy are of the stream's order. The target's context is
/// current.
class StaticSplit {
 public:
  virtual ~StaticSplit() = default;
  virtual multipath::Verdict submit(void* host, CUdeviceptr device, uint64_t size_bytes,
                                    CUstream stream) = 0;
};

class KernelSplit final : public StaticSplit {
 public:
  KernelSplit(const cuda::Driver& driver, multipath::Endpoint& target, multipath::Endpoint& relay,
              Shares shares);
  ~KernelSplit() override;
  multipath::Verdict submit(void* host, CUdeviceptr device, uint64_t size_bytes,
                            CUstream stream) override;

 private:
  multipath::Verdict enqueue_on(multipath::Endpoint& path, int lane_path, uint64_t source,
                                uint64_t destination, uint64_t size_bytes, CUstream stream);

  const cuda::Driver& driver_;
  multipath::Endpoint& target_;
  multipath::Endpoint& relay_;
  Shares shares_;
  std::unique_ptr<multipath::TicketPool> tickets_;
  std::unique_ptr<multipath::LaneSet> lanes_;
  CUstream side_ = nullptr;  // the relayed part's
  CUevent fork_ = nullptr;
  CUevent join_ = nullptr;
};

class CopyEngineSplit final : public StaticSplit {
 public:
  /// `mover` has the shares in its policy.
  CopyEngineSplit(multipath::CopyEngineMover& mover, multipath::Endpoint& target,
                  multipath::Endpoint& relay)
      : mover_(mover), target_(target), relay_(relay) {}
  multipath::Verdict submit(void* host, CUdeviceptr device, uint64_t size_bytes,
                            CUstream stream) override;

 private:
  multipath::CopyEngineMover& mover_;
  multipath::Endpoint& target_;
  multipath::Endpoint& relay_;
};

}  // namespace braid::paper
