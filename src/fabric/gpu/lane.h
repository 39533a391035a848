// A lane is the thread that makes all driver calls for one context. A call may wait for the
// context's lock, which a thread of the program may hold for long (docs/architecture.md, "The
// law"). Then only this thread waits, and no rail does.
//
// Copies begin in the order of the requests, and end in any order. Threads: any.
//
// Once nobody holds a lane, it ends by itself: its thread gives everything back to the driver,
// which may wait for the context's streams. Releasing a lane does not wait for that; LaneEnd does.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "cuda/driver.h"
#include "fabric/gpu/bounce_buffers.h"
#include "fabric/gpu/host_memory.h"
#include "fabric/gpu/mover.h"

namespace braid::fabric::gpu {

/// The lane of a context of the program's, or of the primary context of `gpu` if `context` is null.
/// All callers share it. Null: its thread could not be started.
class Lane;
std::shared_ptr<Lane> lane_of(const cuda::Driver& driver, CUcontext context, int gpu);

class LaneEnd {
 public:
  ~LaneEnd();
  /// Waits for the last driver call of the lane, if nobody holds the lane any more. Otherwise
  /// returns at once.
  void wait();
  /// The same, until `end_ns` of the monotonic clock. False: the driver holds it up still.
  bool wait_until(uint64_t end_ns);
  bool is_over() const;

 private:
  friend class Lane;
  enum class State : uint8_t { kHeld, kBegun, kOver };
  void become(State state);
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  State state_ = State::kHeld;
  std::thread thread_;  // joined by `wait`
};

/// The ends of all lanes that the owner has held.
class LaneEnds {
 public:
  void add(const Lane& lane);
  /// Waits for the lanes that nobody holds any more.
  void wait();

 private:
  std::set<std::shared_ptr<LaneEnd>> ends_;
};

class Lane {
 public:
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  int gpu() const { return gpu_; }  ///< the CUDA ordinal
  const std::shared_ptr<LaneEnd>& end() const { return end_; }
  /// The context is one that the program has made, and may destroy once nothing of it is in use
  /// here: not a primary one, which is held. True too while that is not known.
  bool is_programs() const { return is_programs_; }

  void copy(CopyKind kind, Copy copy);
  /// The same of many. They are taken out of the list.
  void copy(CopyKind kind, std::vector<Copy>& copies);
  /// Runs `call` in the thread, with the context current, before later copies. Its argument says
  /// whether the context can be used.
  void run(std::function<void(CUresult)> call);
  /// Later small copies between GPUs go together (Mover::prepare_pages).
  void prepare_pages();
  /// Pins the memory before later copies. If the driver refuses, copies are slower.
  void pin(std::shared_ptr<HostMemory> memory);
  /// Unpins the memory once no copy of this lane uses it, and releases it then, not before.
  void unpin(const std::shared_ptr<HostMemory>& memory);

 private:
  friend std::shared_ptr<Lane> lane_of(const cuda::Driver& driver, CUcontext context, int gpu);
  /// `context`: one of the program's; null: the primary context of `gpu`, which is made if it does
  /// not exist. If the context cannot be used, all copies fail.
  Lane(const cuda::Driver& driver, CUcontext context, int gpu)
      : driver_(driver), gpu_(gpu), context_(context), mover_(driver) {}
  ~Lane() = default;
  static std::shared_ptr<Lane> start(const cuda::Driver& driver, CUcontext context, int gpu);
  /// Nobody holds it any more.
  void begin_end();

  struct Group {
    CUevent event = nullptr;  // null: it has ended
    CUresult result = CUDA_SUCCESS;
    std::vector<Copy> copies;
    BounceBuffers bounce_buffers;
  };
  struct Stream {
    CUstream handle = nullptr;
    uint64_t groups = 0;  // ever
    std::deque<Group> under_way;
  };

  void work();
  void enter_context();
  bool serve();
  bool has_room(size_t kind) const;
  static std::vector<Copy> take_group(CopyKind kind, std::deque<Copy>& waiting);
  static Stream& stream_for(Stream* streams, const std::vector<Copy>& copies);
  void begin(CopyKind kind, std::vector<Copy> copies);
  bool look();
  bool look(Stream& stream);
  void finish(const Group& group, CUresult result);
  void begin_pin(const std::shared_ptr<HostMemory>& memory);
  void end_pin(const std::shared_ptr<HostMemory>& memory);
  void close();
  bool has_something_under_way() const;

  const cuda::Driver& driver_;
  const int gpu_;
  CUcontext context_;  // of the thread, below too
  Mover mover_;
  const std::shared_ptr<LaneEnd> end_ = std::make_shared<LaneEnd>();
  std::atomic<bool> is_programs_{true};
  CUresult state_ = CUDA_SUCCESS;  // of the context
  CUdevice device_ = 0;
  bool holds_primary_ = false;
  static constexpr size_t kStreamsOfKind = 2;
  Stream streams_[kCopyKindCount][kStreamsOfKind];
  std::vector<CUevent> events_;  // free ones
  std::map<const HostMemory*, std::shared_ptr<HostMemory>> pinned_;

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::shared_ptr<HostMemory>> to_pin_, to_unpin_;  // under the mutex, below too
  std::deque<std::function<void(CUresult)>> to_run_;
  std::deque<Copy> to_copy_[kCopyKindCount];
  bool is_ending_ = false;
};

}  // namespace braid::fabric::gpu
