// Copies from, to and between GPUs of this process that go on beside everything else. A thread for
// each context makes them (fabric/gpu/lane.h): where the driver makes a call wait, that thread
// waits, and no rail, file or other context. A copy that fails is made once more, alone: the driver
// says of many at once only that one was refused. Not synchronised; nothing blocks but the end.
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
  fabric::gpu::Way way = fabric::gpu::Way::kToGpu;
  void* to = nullptr;
  const void* from = nullptr;
  uint64_t size_bytes = 0;
  uint64_t regions = 0;  ///< which two buffers it goes between: a number of the caller's
  std::function<void(bool ok)> ended;
};

class GpuJobs {
 public:
  /// `carrier`: of large copies between host memory and a GPU; null: the driver.
  explicit GpuJobs(std::shared_ptr<fabric::gpu::Carrier> carrier = nullptr);
  /// Waits as `wait_for_all` does.
  ~GpuJobs() { wait_for_all(); }
  GpuJobs(const GpuJobs&) = delete;
  GpuJobs& operator=(const GpuJobs&) = delete;

  void start(GpuJob job);
  /// Before a lane's first copy. It is kept until the end: what it still has to do may wait.
  void add(const std::shared_ptr<fabric::gpu::Lane>& lane);
  /// Tells what has ended. True: something has.
  bool step();
  /// Blocks until no copy is under way. Nobody is told of their ends any more.
  void wait_for_all();
  /// Readable once something has ended, after `arm` has said true.
  int descriptor() const { return told_.get(); }
  bool arm();

 private:
  struct Job {
    GpuJob job;
    bool is_alone = false;
  };
  /// Of one lane.
  struct Queue {
    size_t under_way = 0;
    bool is_careful = false;       // one at a time, until none of `again` is left
    std::deque<uint64_t> again;    // have failed beside others
    std::deque<uint64_t> waiting;  // have come since
  };

  void begin(uint64_t number, Queue& queue);
  void advance(Queue& queue);

  std::shared_ptr<fabric::gpu::Carrier> carrier_;  // a lane that is shared may prepare it late
  Descriptor told_;
  std::shared_ptr<fabric::gpu::Ended> ended_;
  std::vector<fabric::gpu::Ended::Copy> ended_now_;
  fabric::SlotMap<Job> jobs_;
  std::map<std::shared_ptr<fabric::gpu::Lane>, Queue> queues_;
};

}  // namespace braid::transfer
