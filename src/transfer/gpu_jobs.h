// Asynchronous copies from, to and between GPUs of this process. Each context has a thread that
// makes them (fabric/gpu/lane.h): if the driver blocks a call, only that thread waits, and no rail,
// file or other context. A copy that fails is made once more, alone, because for many copies at
// once the driver says only that one was refused. Not synchronised; only `wait_for_all` and the
// destructor block.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "fabric/gpu/lane.h"
#include "fabric/slot_map.h"
#include "transfer/codec.h"
#include "transfer/directory/socket.h"

namespace braid::transfer {

struct GpuJob {
  std::shared_ptr<fabric::gpu::Lane> lane;
  fabric::gpu::CopyKind kind = fabric::gpu::CopyKind::kToGpu;
  void* to = nullptr;
  const void* from = nullptr;
  uint64_t size_bytes = 0;
  uint64_t regions = 0;  ///< identifies the two buffers of the copy: a number of the caller
  bool uses_bounce_buffer = false;  ///< as fabric::gpu::Copy's
  std::function<void(bool ok)> ended;
};

class GpuJobs {
 public:
  /// `carrier` makes large copies between host memory and a GPU; null: the driver makes them.
  explicit GpuJobs(std::shared_ptr<fabric::gpu::Carrier> carrier = nullptr);
  /// Waits as `wait_for_all` does, and until nothing is left in contexts that the program has made.
  ~GpuJobs();
  GpuJobs(const GpuJobs&) = delete;
  GpuJobs& operator=(const GpuJobs&) = delete;

  void start(GpuJob job);
  /// A buffer of the lane's context was registered. To be called before the lane's first copy.
  void add(const std::shared_ptr<fabric::gpu::Lane>& lane);
  /// It is registered no more, and no copy uses it. True: it was the last one of a context that the
  /// program has made, and may destroy now, so the lane is not held here any more.
  bool remove(const std::shared_ptr<fabric::gpu::Lane>& lane);
  /// Calls `ended` of copies that have ended. True: a copy has ended.
  bool step();
  /// Blocks until no copy is under way. Does not call their `ended`.
  void wait_for_all();
  /// Readable once a copy has ended, after `arm` has returned true.
  int descriptor() const { return told_.get(); }
  bool arm();

 private:
  struct Job {
    GpuJob job;
    bool is_alone = false;
  };
  /// The copies of one lane.
  struct Queue {
    size_t buffers = 0;  // of its context
    size_t under_way = 0;
    bool is_careful = false;       // copies go one at a time until `again` is empty
    std::deque<uint64_t> again;    // copies that failed beside others
    std::deque<uint64_t> waiting;  // copies that came since
  };

  void begin(uint64_t number, Queue& queue);
  void advance(Queue& queue);

  fabric::gpu::LaneEnds lane_ends_;                // of all lanes that there were
  std::shared_ptr<fabric::gpu::Carrier> carrier_;  // a shared lane may prepare it late
  Descriptor told_;
  std::shared_ptr<fabric::gpu::Ended> ended_;
  std::vector<fabric::gpu::Ended::Copy> ended_now_;
  fabric::SlotMap<Job> jobs_;
  std::map<std::shared_ptr<fabric::gpu::Lane>, Queue> queues_;
};

}  // namespace braid::transfer
