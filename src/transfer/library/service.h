// An engine that several threads use. A thread that waits drives it while things happen; otherwise
// the service's own thread heals, serves peers and posts slices that have room. If nothing happens,
// the thread sleeps until a descriptor of the rails or the directory, or a deadline, wakes it. With
// links over shared memory, which has no descriptor, it looks now and then.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "fabric/gpu/lane.h"
#include "fabric/library/looks.h"
#include "fabric/sleep.h"
#include "topology/machine.h"
#include "transfer/directory/lease.h"
#include "transfer/directory/server.h"
#include "transfer/engine.h"
#include "transfer/library/ended_batches.h"
#include "transfer/library/event_descriptor.h"
#include "transfer/library/open_rails.h"
#include "transfer/library/options.h"
#include "transfer/library/report.h"
#include "transfer/sharing/server.h"

namespace braid::transfer {

class Service {
 public:
  static Result<std::unique_ptr<Service>> open(const OpenOptions& options,
                                               const topology::Machine& machine,
                                               const std::vector<topology::Nic>& nics);
  /// Ends all work under way, and tells the peers.
  ~Service();

  /// "braid://host:port/incarnation"
  std::string name() const;
  /// Whether processes of this host can map memory that was allocated here, and it maps theirs.
  bool shares() const { return sharing_ != nullptr; }

  /// The NUMA node of most rails, by the kernel's number; -1: none, or it is not to be pinned.
  int numa_node() const { return numa_node_; }

  TransferReport report();

  /// Blocks until a way to the peer works, or the limit.
  Result<uint64_t> open_segment(const std::string& name, uint64_t limit_us);
  /// Blocks until the segment's owner has opened the file, or the limit.
  Result<uint64_t> open_file(uint64_t segment, const std::string& path, Rights wanted,
                             uint64_t limit_us);
  /// As Engine::remove_buffer. `wait_until_free` is to be called next.
  Status remove_buffer(uint64_t buffer);
  /// Blocks until no peer can write in a buffer that was removed, and nothing is left in a context
  /// that the program has made, if the buffer was the last one there; or until the limit.
  Status wait_until_free(uint64_t buffer, uint64_t limit_us);

  /// Returns `call(engine)`, which may be called in another thread. Nobody else uses the engine
  /// meanwhile.
  template <typename Call>
  auto with(const Call& call) {
    return mutex_.run([&] { return call_and_follow_up(call); });
  }
  /// The same, always in this thread: for what asks CUDA for the current context.
  template <typename Call>
  auto with_here(const Call& call) {
    return mutex_.run_here([&] { return call_and_follow_up(call); });
  }
  /// Blocks until `is_so(engine)`. False: the limit has passed, or the service ends.
  bool wait(uint64_t limit_us, const std::function<bool(Engine&)>& is_so);

  // Batches live in the engine until they have ended, then in `ended_`.

  /// Blocks until the batch has ended. False: the limit has passed, or the service ends.
  Result<bool> wait_for_batch(uint64_t batch, uint64_t limit_us);
  /// Of each request of the batch, also of those that are under way.
  Result<std::vector<RequestStatus>> outcomes(uint64_t batch);
  Status cancel(uint64_t batch);
  /// `take_ended` does not return it any more. An error if it has not ended.
  Status forget(uint64_t batch);

  /// Readable while ended batches or notifications have not been taken.
  int event_descriptor();
  /// Batches that have ended since `event_descriptor` was first called.
  std::vector<uint64_t> take_ended(size_t count_max) { return ended_.take(count_max); }
  /// Blocks until a notification has come, or the limit.
  std::optional<Notified> next_notification(uint64_t limit_us);

  bool is_ending() const { return drivers_.is_ending; }

 private:
  Service(fabric::Secret secret, std::unique_ptr<Engine> engine,
          std::unique_ptr<DirectoryServer> directory, std::unique_ptr<SharingServer> sharing);
  template <typename Call>
  auto call_and_follow_up(const Call& call) {
    engine_->set_now(monotonic_ns());
    if constexpr (std::is_void_v<decltype(call(*engine_))>) {
      call(*engine_);
      follow_up();
    } else {
      auto answer = call(*engine_);
      follow_up();
      return answer;
    }
  }
  void work();
  void rest(fabric::Lock& lock);
  uint64_t next_question_ns() const;
  bool look_for_questions(uint64_t now_ns);
  bool step(uint64_t now_ns);
  void follow_up();
  void deliver();
  Notified take_notification();
  Status take_name(const std::string& name);

  fabric::Secret secret_;
  std::string store_;             // URL; empty: none
  std::unique_ptr<Lease> lease_;  // of the name in the store; it ends after the engine
  fabric::DelegatingMutex mutex_;
  std::unique_ptr<Engine> engine_;              // under the mutex
  std::unique_ptr<DirectoryServer> directory_;  // under the mutex
  std::unique_ptr<SharingServer> sharing_;      // under the mutex; null: it shares nothing
  fabric::Origin origin_;
  std::string host_in_name_;  // the port is the directory's
  int numa_node_ = -1;
  uint64_t look_at_directory_ns_ = 0;
  std::vector<int> descriptors_;
  fabric::Sleep sleep_;
  EventDescriptor events_;
  EndedBatches ended_{events_};
  std::deque<Notified> notifications_;
  /// By buffers that were removed; under the mutex.
  std::unordered_map<uint64_t, std::shared_ptr<fabric::gpu::LaneEnd>> lanes_;
  fabric::Drivers drivers_;
  std::thread thread_;
};

}  // namespace braid::transfer
