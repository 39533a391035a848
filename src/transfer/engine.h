// Start here: callers say what is to move, and the engine finds the ways.
//
//   segment = open_segment(description of a peer)
//   batch = submit(requests): each reads from or writes to a segment, from or to memory of this
//           process that is registered
//   step(now) until status(batch) says that it has ended; each request has an outcome of its own
//
// A request is cut into slices, and the scheduler (scheduler.h) gives each slice to a way when that
// has room: rails to the peer's rails (backends/fabric.h), memory of the peer's that is mapped here
// (backends/mapped.h), this process (backends/memory.h, gpu.h, file.h). Which ways there are
// depends on where both ends lie (engine_ways.cpp); where a way reaches host memory alone, GPU
// memory goes through that (backends/through_host.h). A slice that is overdue is sent again another
// way; its request is final only once the first way is fenced.
//
// It owns no thread: `step` does all work, every member is called from one thread at a time, none
// blocks. Times are nanoseconds of CLOCK_MONOTONIC. Numbers of things are never used twice.
// Source: TENT, 3.1 to 3.4.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "fabric/slot_map.h"
#include "transfer/backends/fabric.h"
#include "transfer/backends/file.h"
#include "transfer/backends/gpu.h"
#include "transfer/backends/mapped.h"
#include "transfer/backends/memory.h"
#include "transfer/backends/through_host.h"
#include "transfer/buffers.h"
#include "transfer/description.h"
#include "transfer/ends.h"
#include "transfer/places.h"
#include "transfer/policy/pairing.h"
#include "transfer/scheduler.h"
#include "transfer/shares.h"
#include "transfer/types.h"

namespace braid::transfer {

struct Request {
  uint64_t segment = 0;
  Operation operation = Operation::kRead;
  void* local = nullptr;
  uint64_t address = 0;  ///< in the segment: of the owner's memory, or the position in the file
  uint64_t size_bytes = 0;
  Urgency urgency = Urgency::kBulk;
  uint64_t deadline_ns = kNever;
};

/// Behind a batch: told to the owner of `segment` once all bytes of all requests are there, and
/// not at all if one has failed. The segment may be closed meanwhile.
struct NotificationRequest {
  uint64_t segment = 0;
  std::string name;
  std::vector<std::byte> payload;
};

struct RequestStatus {
  bool has_ended = false;
  Cause cause = Cause::kNone;    ///< kNone: done, once it has ended
  uint64_t delivered_bytes = 0;  ///< once it has ended; not a prefix
};

struct BatchStatus {
  size_t request_count = 0;
  size_t ended_count = 0;
  size_t failed_count = 0;
  bool has_ended() const { return ended_count == request_count; }
};

/// One hop of a way, with what all bytes would take on it alone.
struct HopExplanation {
  std::string text;  ///< "GPU 0 to host memory"
  double us = 0;
};
/// One way to a segment, as the engine sees it now.
struct WayExplanation {
  std::string text;  ///< "tcp;ofi_rxm 10.0.0.8 to 10.0.0.7"
  WayExplained way;
  std::vector<HopExplanation> hops;  ///< from the source to the target
  double finish_us =
      0;  ///< of the whole request, were it to take this way alone from an idle start
};

struct PathStatistics {
  Incarnation peer{};
  std::string text;
  PathView view;
};

struct TransferStatistics {
  uint64_t requests_done = 0;
  uint64_t requests_failed = 0;
  uint64_t bytes_read = 0;
  uint64_t bytes_written = 0;
  uint64_t slices = 0;
  uint64_t reissued_slices = 0;
  uint64_t fences = 0;
  uint64_t peers_lost = 0;
  uint64_t mappings_refused = 0;  ///< what owners of this host have handed out, and was not mapped
};

struct EngineOptions {
  Incarnation incarnation{};
  std::string name;
  fabric::Origin origin{};
  SchedulerOptions scheduler;
  size_t requests_max = 1 << 20;  ///< under way at once
  /// Says when processes of this host have ended; null: nobody does.
  std::shared_ptr<fabric::Processes> processes;
  Places places;
  /// Other engines of this host that use the same rails; null: nobody knows of them.
  std::shared_ptr<HostShares> shares;
};

class Engine {
 public:
  /// `rails` and their descriptions, in one order. What they let peers do is `owned`.
  Engine(std::unique_ptr<Owned> owned, std::vector<std::unique_ptr<Rail>> rails,
         std::vector<RailDescription> descriptions, const EngineOptions& options);
  ~Engine();

  const Incarnation& incarnation() const { return options_.incarnation; }
  Description describe() const;

  // Memory of this process.

  /// Of the host, or of a GPU if `Owned::gpu` is there. What peers may do there is in `rights`;
  /// what this process does with it needs none. `file`: of memory that peers may map.
  Result<uint64_t> add_buffer(MutableBytes memory, Rights rights, File file = {});
  /// An error while a request uses it. Peers can write there until `is_in_use` is false.
  Status remove_buffer(uint64_t buffer);
  bool is_in_use(uint64_t buffer) const { return fabric_.holds_buffer(buffer); }
  const Buffers& buffers() const { return owned_->buffers; }
  /// What it shares with processes of this host; null: nothing, and it maps nothing of theirs.
  const Sharing* sharing() const { return owned_->sharing.get(); }
  /// Peers, and this process, name its files "name/path".
  Status export_folder(const std::string& name, const std::string& folder, Rights rights) {
    return owned_->exports.add(name, folder, rights);
  }

  // Segments.

  /// The memory of a peer, or of this process itself. It dials; see `ways_up`. `mapped`: what of
  /// it is mapped here.
  Result<uint64_t> open_segment(const Description& owner, MappedMemory mapped = {});
  /// What is under way goes on.
  Status close_segment(uint64_t segment);
  /// How many of its rails' ways work now, and how many there are.
  std::pair<size_t, size_t> ways_up(uint64_t segment) const;
  /// Ways that do not work yet are probed until they do.
  void settle(uint64_t segment);
  bool is_lost(uint64_t segment) const;
  /// What its owner had registered when it was opened; of the own segment: now.
  Result<std::vector<RangeDescription>> ranges(uint64_t segment) const;
  /// Between host memory at both ends, or the file.
  std::vector<WayExplanation> explain(uint64_t segment, uint64_t size_bytes, Urgency urgency);
  /// Between the two ends that the request names; what is wrong with it.
  Result<std::vector<WayExplanation>> explain(const Request& request);

  /// A file that the segment's owner has exported. `take_file` has the answer to the number, once
  /// it is there; who does not wait for it any more says so.
  Result<uint64_t> ask_for_file(uint64_t segment, const std::string& path, Rights wanted);
  std::optional<FileOpened> take_file(uint64_t token);
  void forget_file(uint64_t token);
  /// A segment of its own: the file, by positions.
  Result<uint64_t> add_file(uint64_t segment, const FileOpened& opened);
  /// That a file had when it was opened.
  Result<uint64_t> file_bytes(uint64_t segment) const;

  // Batches.

  /// What is wrong with one request is that request's outcome alone. An error: the notification
  /// has no segment, or too many to its owner are to be told or answered.
  Result<uint64_t> submit(const std::vector<Request>& requests,
                          std::optional<NotificationRequest> notification);
  Result<BatchStatus> status(uint64_t batch) const;
  Result<RequestStatus> status(uint64_t batch, size_t request) const;
  /// What cannot be stopped any more ends as it does.
  Status cancel(uint64_t batch);
  /// An error before it has ended.
  Status forget(uint64_t batch);
  /// Batches that have ended since the last call.
  std::vector<uint64_t> take_ended() { return std::exchange(ended_, {}); }

  std::vector<Notified> take_notifications() { return fabric_.take_notifications(); }
  void set_notification_room(size_t count) { fabric_.set_notification_room(count); }

  const TransferStatistics& statistics() const { return statistics_; }
  const FabricStatistics& fabric_statistics() const { return fabric_.statistics(); }
  std::vector<PathStatistics> paths() const;
  /// Of memory of peers.
  size_t mapped_count() const { return mapped_.count(); }

  /// What time it is, for members that follow. `step` says it too.
  void set_now(uint64_t now_ns) { now_ns_ = now_ns; }
  /// True: there may be more to do at once.
  bool step(uint64_t now_ns);
  uint64_t next_deadline_ns() const;
  std::vector<int> wait_descriptors();
  bool has_to_be_asked() const { return fabric_.has_to_be_asked(); }
  bool arm();
  /// Nothing of this side's is under way.
  bool is_idle() const { return running_.size() == 0; }

 private:
  struct Path {
    Backend* backend = nullptr;
    uint64_t peer = 0;
    std::string text;
    std::string provider = {};  // of a rail
    size_t open = 0;            // postings that have not ended
    size_t failures = 0;        // of `local`
    uint64_t fence_ns = 0;  // when it is fenced by force, if they do not end before; 0: not wanted
    bool is_fencing = false;
    bool reaches_gpus = false;
    uint32_t rail_way = 0;  // of a rail's: the backend's number
    /// For GPU memory here, by a rail that reaches host memory alone. It has a window and a health
    /// of its own, beside the rail's for host memory: a GPU that stands still holds up no rail.
    bool is_through_host = false;
  };
  struct Posted {
    uint64_t request = 0;
    uint32_t path = 0;
  };
  /// A process that has segments, by the scheduler's number.
  struct Peer {
    Incarnation who{};
    bool is_here = false;  // on this host
    fabric::Origin origin{};
    std::vector<RailDescription> rails;
    std::vector<uint32_t> rail_numbers;                          // of the scheduler, by rail
    std::vector<uint32_t> own_rails;                             // of the scheduler: no NIC
    std::map<std::pair<size_t, size_t>, uint32_t> path_of_pair;  // rails: ours, theirs
    std::map<uint32_t, uint32_t> through_host;                   // paths, by that of the rail
    std::map<Ends, uint32_t> ways;                               // that were found
    std::optional<std::pair<Ends, uint32_t>> last_ways;  // that were asked for: most are alike
    uint32_t memory = 0, files = 0, copies = 0;          // paths, of this process itself
    std::optional<uint32_t> mapped;                      // path, to memory of it that is mapped
    std::vector<uint32_t> paths;
    size_t segments = 0;
    size_t requests = 0;       // that have not ended
    size_t notifications = 0;  // of batches that have not ended
    bool is_lost = false;
    bool is_self = false;
  };
  struct Segment {
    uint64_t peer = 0;
    std::vector<PlaceDescription> places;
    std::vector<RangeDescription> ranges;
    std::map<uint64_t, uint64_t> ends;  // of the ranges, by their addresses
    uint64_t file = 0;                  // 0: memory
    uint64_t file_bytes = 0;
  };
  struct Batch {
    std::vector<RequestStatus> requests;
    BatchStatus status;
    std::optional<NotificationRequest> notification;
    uint64_t told = 0;              // the peer that it is for
    std::vector<uint64_t> running;  // their numbers, by request; 0: not any more
  };
  struct Running {
    uint64_t peer = 0;
    uint64_t batch = 0;
    size_t index = 0;
    Operation operation = Operation::kRead;
    uint64_t buffer = 0;
    uint64_t far = 0;        // the other end's, of the own segment; 0: it is not this side's
    bool is_on_gpu = false;  // the buffer
    MutableBytes local;
    uint64_t address = 0;
    uint64_t file = 0;
    Cause cause = Cause::kNone;  // that its owner has given
  };

  Result<uint64_t> add_buffer(Buffer buffer);
  uint64_t add_stage(MutableBytes memory);
  uint64_t add_self();
  uint32_t add_own_path(uint64_t peer, Backend& backend, const char* text, double gbps,
                        double latency_us);
  void add_mapped(uint64_t peer, MappedMemory mapped);
  Result<uint64_t> add_peer(const Description& owner);
  void leave_scheduler(uint64_t number, const Peer& peer);

  // engine_ways.cpp
  Endpoint endpoint_of(const Segment& segment, uint64_t address, uint64_t size_bytes) const;
  static Endpoint endpoint_of(const Buffer& buffer) {
    return {buffer.place, buffer.rails, false, true};
  }
  std::optional<uint32_t> ways_between(uint64_t peer, const Ends& ends);
  std::vector<Way> find_ways(uint64_t peer, const Ends& ends);
  std::vector<Transport> transports_between(const Peer& peer, const Ends& ends) const;
  static std::vector<Hop> hops_of(const std::string& provider, const Ends& ends, double gbps);
  double gbps_of(const Peer& peer, const std::string& provider) const;
  bool may_pair(const Peer& peer, size_t ours, size_t theirs) const;
  std::optional<uint32_t> path_between(uint64_t peer, size_t ours, size_t theirs);
  uint32_t path_through_host(uint64_t peer, uint32_t rail_path);
  std::vector<WayExplanation> explain(uint64_t peer, const Ends& ends, uint64_t size_bytes,
                                      Urgency urgency);
  void explain_hops(const Ends& ends, uint64_t size_bytes, WayExplanation& way) const;

  Cause check_request(const Request& request, const Segment*& segment, const Buffer*& buffer) const;
  void post(const Path& path, uint32_t number, const Running& running, const Piece& piece);
  void start(uint64_t batch, size_t index, const Request& request);
  static bool is_doubtful(const Segment& segment, const Request& request);
  void end(uint64_t batch, size_t index, Cause cause, uint64_t delivered_bytes);
  void batch_ended(uint64_t id, Batch& batch);
  Result<uint64_t> promise(const NotificationRequest& notification);
  void post_all();
  void take(Backend& backend);
  void take(const PieceEnd& end);
  void give_up_if_useless(uint32_t path);
  void take_scheduler_events();
  void want_fence(uint32_t path);
  void way_failed(uint32_t way);
  void way_up(uint32_t way);
  void way_fenced(uint32_t way);
  void fenced(uint32_t path);
  bool is_up(const Path& path) const;
  void look_after_fences();
  void look_after_processes();
  void lose_peer(uint64_t peer);
  void drop_peer_if_unused(uint64_t peer);
  bool is_unused(const Peer& peer) const;
  bool can_be_dropped(const Peer& peer) const;
  void drop_peer(uint64_t peer);
  void look_after_unused_peers();
  void request_ended(const RequestEnded& ended);
  uint64_t far_buffer(const Segment& segment, const Request& request) const;
  void release(uint64_t buffer);

  EngineOptions options_;
  std::unique_ptr<Owned> owned_;
  std::vector<RailDescription> rails_;
  std::vector<uint32_t> rail_numbers_;  // of the scheduler, by rail
  std::optional<ThroughHost> through_;  // before the rails: they reach its memory
  FabricBackend fabric_;
  MemoryBackend memory_;
  MappedBackend mapped_;
  FileBackend file_;
  std::optional<GpuBackend> gpu_;
  Scheduler scheduler_;
  uint64_t now_ns_ = 0;
  uint64_t look_at_processes_ns_ = 0;
  std::map<uint32_t, Path> paths_;
  fabric::SlotMap<Peer> peers_;
  std::map<Incarnation, uint64_t> peer_of_;
  fabric::SlotMap<Segment> segments_;
  fabric::SlotMap<Batch> batches_;
  fabric::SlotMap<Running> running_;
  std::unordered_map<uint64_t, Posted> posted_;  // by posting
  std::vector<uint32_t> fences_wanted_;          // paths
  std::vector<uint32_t> fenced_below_;           // paths whose slices are still being copied
  std::vector<uint64_t> unused_;                 // peers, with something under way that ends first
  std::unordered_map<uint64_t, size_t> uses_;    // requests, by buffer
  std::vector<uint64_t> ended_;
  uint64_t tokens_ = 0;
  std::map<uint64_t, FileOpened> own_files_;  // answers, by token
  TransferStatistics statistics_;
};

}  // namespace braid::transfer
