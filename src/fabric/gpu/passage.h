// Host memory that copies of several contexts pass through. One of the contexts pins it for all;
// before the program may destroy that context, its lane unpins the memory again, and the driver may
// hold that up for long. No copy of another context may use the memory meanwhile, and none may
// wait: from when a context begins to leave until its lane has unpinned the memory, copies use
// bounce buffers (Copy::uses_bounce_buffer). Not synchronised.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "fabric/gpu/host_memory.h"
#include "fabric/gpu/lane.h"

namespace braid::fabric::gpu {

class Passage {
 public:
  Passage() = default;
  explicit Passage(std::shared_ptr<HostMemory> memory) : memory_(std::move(memory)) {}
  Passage(Passage&&) = default;
  Passage& operator=(Passage&&) = default;

  bool is_open() const { return memory_ != nullptr; }
  MutableBytes bytes() const { return memory_->bytes(); }

  /// To be called before copies of the lane. Pins the memory if nobody does.
  void pin(const std::shared_ptr<Lane>& lane);
  /// A copy begins. True: it uses a bounce buffer instead of the memory.
  bool begin_copy();
  /// `uses_bounce_buffer`: what `begin_copy` has said.
  void end_copy(bool uses_bounce_buffer);
  /// Nothing of the lane's context is to be left. False: call it again once a copy has ended.
  bool leave(const Lane& lane);
  /// The lane's context does not leave after all.
  void stay(const Lane& lane);
  /// The owner ends: unpins the memory, which no copy uses any more.
  void give_back();

 private:
  struct Lease;

  bool is_being_unpinned() const;
  std::shared_ptr<HostMemory> lend();

  std::shared_ptr<HostMemory> memory_;
  std::shared_ptr<std::atomic<bool>> is_held_ = std::make_shared<std::atomic<bool>>(false);
  std::shared_ptr<Lane> pinned_by_;   // null: nobody pins it, or it is being unpinned
  std::shared_ptr<HostMemory> lent_;  // to that lane; its last copy ends the lease
  bool is_leaving_ = false;           // that lane
  uint64_t copies_ = 0;               // through the memory, under way
};

}  // namespace braid::fabric::gpu
