// Start here: callers say which bytes are to move, and the engine finds the ways.
//
//   segment = open_segment(description of a peer)
//   batch = submit(requests): each reads from or writes to a segment, from or to memory of this
//           process that is registered
//   step(now) until status(batch) says that it has ended; each request has an outcome of its own
//
// The scheduler (scheduler.h) cuts a request into slices and gives each slice to a way that has
// room. The ways are: rails to the peer's rails (backends/fabric.h), memory of the peer that is
// mapped here (backends/mapped.h), and this process itself (backends/memory.h, gpu.h, file.h).
// Which of them a request has depends on where its two ends lie (transports.h, engine_ways.cpp). If
// a way reaches only host memory, GPU memory goes through host memory (backends/through_host.h). An
// overdue slice is sent again on another way; its request is final only once the first way is
// fenced.
//
// It owns no thread: `step` does all work, every member is called from one thread at a time, none
// blocks. Times are nanoseconds of CLOCK_MONOTONIC. Numbers of things are never used twice.
// Source: TENT, 3.1 to 3.4.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
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
#include "transfer/engine_types.h"
#include "transfer/places.h"
#include "transfer/policy/pairing.h"
#include "transfer/policy/reach.h"
#include "transfer/scheduler.h"
#include "transfer/shares.h"
#include "transfer/transports.h"
#include "transfer/types.h"

namespace braid::transfer {

struct EngineOptions {
  Incarnation incarnation{};
  std::string name;
  fabric::Origin origin{};
  SchedulerOptions scheduler;
  size_t requests_max = 1 << 20;  ///< under way at once
  /// Reports processes of this host that have ended; null: the engine is not told.
  std::shared_ptr<fabric::Processes> processes;
  Places places;
  /// Over which PCIe links a copy of so many bytes between host memory and a GPU of this process
  /// would go. Null, or an empty answer: unknown. Does not block.
  std::function<std::vector<CopyPath>(int gpu, bool is_to_gpu, uint64_t size_bytes)> copy_paths;
  /// Other engines of this host that use the same rails; null: unknown.
  std::shared_ptr<HostShares> shares;
};

class Engine {
 public:
  /// `rails` and their descriptions, in the same order. `owned` holds what peers may access.
  Engine(std::unique_ptr<Owned> owned, std::vector<std::unique_ptr<Rail>> rails,
         std::vector<RailDescription> descriptions, const EngineOptions& options);
  ~Engine();

  const Incarnation& incarnation() const { return options_.incarnation; }
  Description describe() const;

  // Memory of this process.

  /// Registers host memory, or GPU memory if `Owned::gpu` is there. `rights` says what peers may do
  /// there; this process itself needs no rights. `file`: the file of memory that peers may map. A
  /// rail that refuses the memory is left out (`refused_memory`); an error if all do.
  Result<uint64_t> add_buffer(MutableBytes memory, Rights rights, File file = {});
  /// An error while a request uses the buffer. Peers can write there until `is_in_use` is false.
  Status remove_buffer(uint64_t buffer);
  bool is_in_use(uint64_t buffer) const { return fabric_.holds_buffer(buffer); }
  std::vector<RefusedMemory> refused_memory() const;
  const Buffers& buffers() const { return owned_->buffers; }
  /// The memory that it shares with processes of this host; null: none, and it maps none of theirs.
  const Sharing* sharing() const { return owned_->sharing.get(); }
  /// Exports a folder as `name`: its files are then "name/path", for peers and for this process.
  /// `folder` comes from Exports::open_folder.
  Status export_folder(const std::string& name, File folder, Rights rights) {
    return owned_->exports.add(name, std::move(folder), rights);
  }

  // Segments.

  /// Opens the memory of a peer, or of this process itself. It dials the peer; see `ways_up`.
  /// `mapped`: the peer's memory that is mapped here.
  Result<uint64_t> open_segment(const Description& owner, MappedMemory mapped = {});
  /// Requests under way go on.
  Status close_segment(uint64_t segment);
  /// How many of its rails' ways work now, and how many there are.
  std::pair<size_t, size_t> ways_up(uint64_t segment) const;
  /// Ways that do not work yet are probed until they do.
  void settle(uint64_t segment);
  /// kPeerLost: its owner was given up. kOtherVersion: no rail of it has a version in common with
  /// this side. Neither gets better.
  Cause wrong_with(uint64_t segment) const;
  /// The memory that the owner had registered when the segment was opened; for the own segment, the
  /// memory that is registered now.
  Result<std::vector<RangeDescription>> ranges(uint64_t segment) const;
  /// The ways between host memory here and the segment's host memory, or its file.
  std::vector<WayExplanation> explain(uint64_t segment, uint64_t size_bytes, Urgency urgency);
  /// The ways between the two ends that the request names. An error says what is wrong with the
  /// request.
  Result<std::vector<WayExplanation>> explain(const Request& request);

  /// Asks for a file that the segment's owner has exported, and returns a token. `take_file` gives
  /// the answer to the token once it has come; a caller that stops waiting calls `forget_file`.
  Result<uint64_t> ask_for_file(uint64_t segment, const std::string& path, Rights wanted);
  std::optional<FileOpened> take_file(uint64_t token);
  void forget_file(uint64_t token);
  /// Makes the file a segment of its own, whose addresses are positions in the file.
  Result<uint64_t> add_file(uint64_t segment, const FileOpened& opened);
  /// The size of the file when it was opened.
  Result<uint64_t> file_bytes(uint64_t segment) const;

  // Batches.

  /// An invalid request is reported by its own outcome alone. An error: the notification names no
  /// segment, or too many notifications to its owner are pending or unanswered.
  Result<uint64_t> submit(const std::vector<Request>& requests,
                          std::optional<NotificationRequest> notification);
  Result<BatchStatus> status(uint64_t batch) const;
  /// Of each request of the batch, also of those that are under way.
  Result<std::vector<RequestStatus>> outcomes(uint64_t batch) const;
  /// Slices that cannot be stopped any more end normally.
  Status cancel(uint64_t batch);
  /// An error if the batch has not ended.
  Status forget(uint64_t batch);
  /// Forgets a batch that has ended, and returns the outcomes of its requests.
  std::vector<RequestStatus> take(uint64_t batch);
  /// Batches that have ended since the last call.
  std::vector<uint64_t> take_ended() { return std::exchange(ended_, {}); }

  std::vector<Notified> take_notifications() { return fabric_.take_notifications(); }
  void set_notification_room(size_t count) { fabric_.set_notification_room(count); }

  const TransferStatistics& statistics() const { return statistics_; }
  const FabricStatistics& fabric_statistics() const { return fabric_.statistics(); }
  std::vector<PathStatistics> paths() const;
  std::vector<LinkUse> links() const;
  /// The number of mapped ranges of peers' memory.
  size_t mapped_count() const { return mapped_.count(); }

  /// Sets the time for the calls that follow. `step` sets it too.
  void set_now(uint64_t now_ns) { now_ns_ = now_ns; }
  /// True: there may be more to do at once.
  bool step(uint64_t now_ns);
  uint64_t next_deadline_ns() const;
  std::vector<int> wait_descriptors();
  bool has_to_be_asked() const { return fabric_.has_to_be_asked(); }
  bool arm();
  /// No request of this side is under way.
  bool is_idle() const { return running_.size() == 0; }

 private:
  struct Path {
    Backend* backend = nullptr;
    uint64_t peer = 0;
    std::string text;
    HopKind carrier = HopKind::kRail;
    std::string provider = {};             // of a rail
    size_t open = 0;                       // postings that have not ended
    std::map<uint32_t, Reach> reach = {};  // by the number of the ways; none: nothing has failed
    uint64_t fence_ns = 0;  // when it is fenced by force, unless its postings end; 0: not wanted
    bool is_fencing = false;
    /// Bytes of a posting that has ended may still land. Another link says nothing about them: only
    /// a fence does.
    bool may_land = false;
    uint32_t backend_way = 0;  // the backend's number of it: its own, or that of the path below
    /// It carries GPU memory of this side over another path, which reaches only host memory: a
    /// rail's, or that of files. It has its own window and health: a stalled GPU holds up no rail.
    bool is_through_host = false;
    bool is(const Transport& transport) const {
      return carrier == transport.carrier && provider == transport.provider &&
             is_through_host == transport.is_through_host;
    }
  };
  struct Posted {
    uint64_t request = 0;
    uint32_t path = 0;
  };
  /// A path that a way set does without for a while: Reach.
  struct Closed {
    uint64_t until_ns = 0;
    uint32_t ways = 0;
    uint32_t path = 0;
    bool is(uint32_t of_ways, uint32_t of_path) const { return ways == of_ways && path == of_path; }
  };
  /// A process whose segments are open here. Its number is the scheduler's number of the peer.
  struct Peer {
    Incarnation who{};
    bool is_here = false;  // on this host
    fabric::Origin origin{};
    std::vector<RailDescription> rails;
    topology::NumaDistances distances;
    std::vector<uint32_t> rail_numbers;      // of the scheduler, by rail
    std::vector<uint32_t> own_rails;         // of the scheduler: no NIC
    using Pair = std::pair<size_t, size_t>;  // rails: ours, theirs
    std::map<Pair, uint32_t> path_of_pair;
    std::set<Pair> other_version;               // pairs without a common version: they have no path
    std::map<uint32_t, uint32_t> through_host;  // paths, by the path below
    std::map<Ends, uint32_t> ways;              // that were found
    std::optional<std::pair<Ends, uint32_t>> last_ways;  // the latest; most requests are alike
    std::map<HopKind, uint32_t> own;  // paths without a rail: what is mapped, or this process
    std::map<uint64_t, uint32_t> own_folders;  // those of files: a folder may not answer
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
    uint64_t folder = 0;  // of an own file: its number in Exports
  };
  struct Batch {
    std::vector<RequestStatus> requests;
    BatchStatus status;
    std::optional<NotificationRequest> notification;
    uint64_t told = 0;              // the peer that it is for
    std::vector<uint64_t> running;  // their numbers, by request; 0: it has ended
  };
  struct Running {
    uint64_t peer = 0;
    uint64_t batch = 0;
    size_t index = 0;
    Operation operation = Operation::kRead;
    uint64_t buffer = 0;
    uint64_t far = 0;  // the buffer at the far end if that is this process; otherwise 0
    MutableBytes local;
    uint64_t address = 0;
    uint64_t file = 0;
    uint32_t ways = 0;           // of the scheduler
    Cause cause = Cause::kNone;  // what has stopped it, other than the scheduler
  };

  Result<uint64_t> add_buffer(Buffer buffer);
  uint64_t add_stage(MutableBytes memory);
  uint64_t add_self();
  uint32_t add_own_path(uint64_t peer, HopKind carrier, Backend& backend, std::string text);
  void add_mapped(uint64_t peer, MappedMemory mapped);
  Result<uint64_t> add_peer(const Description& owner);
  void leave_scheduler(uint64_t number, const Peer& peer);

  // engine_ways.cpp
  Endpoint endpoint_of(const Segment& segment, uint64_t address, uint64_t size_bytes) const;
  static Endpoint endpoint_of(const Buffer& buffer) {
    return {buffer.place, buffer.rails, false, true};
  }
  Cause ways_between(uint64_t peer, const Ends& ends, uint32_t& ways);
  Cause find_ways(uint64_t peer, const Ends& ends, std::vector<Way>& ways);
  Cause add_rail_ways(uint64_t peer, const Ends& ends, const Transport& transport,
                      std::vector<Way>& ways);
  Links links_to(const Peer& peer) const;
  double gbps_of(const Peer& peer, const std::string& provider) const;
  bool may_pair(const Peer& peer, size_t ours, size_t theirs) const;
  std::optional<uint32_t> path_between(uint64_t peer, size_t ours, size_t theirs);
  uint32_t path_of_folder(uint64_t peer, uint64_t folder);
  uint32_t path_through_host(uint64_t peer, uint32_t below);
  size_t rails_alike_before(size_t rail) const;
  std::string rail_name(size_t rail) const;
  std::vector<WayExplanation> explain(uint64_t peer, const Ends& ends, uint64_t size_bytes,
                                      Urgency urgency);
  std::vector<CopyPath> copies_between(const Ends& ends, uint64_t size_bytes) const;
  void explain_hops(const Ends& ends, std::vector<Hop> hops, uint64_t size_bytes,
                    WayExplanation& way) const;

  Cause check_request(const Request& request, const Segment*& segment, const Buffer*& buffer) const;
  void start(uint64_t batch, size_t index, const Request& request);
  /// The least slices of copies by GPUs, since each has a start and an end: within this process,
  /// where several links share one (braid_copy), and to GPUs of another process. While there are
  /// urgent requests, slices are small whatever these say.
  static constexpr uint64_t kCopyBytesMin = 256 << 20;
  static constexpr uint64_t kPeerCopyBytesMin = 32 << 20;
  bool is_doubtful(const Segment& segment, const Request& request) const;
  void end(uint64_t batch, size_t index, Cause cause, uint64_t delivered_bytes);
  void batch_ended(uint64_t id, Batch& batch);
  Result<uint64_t> promise(const NotificationRequest& notification);
  void post_all();
  void take(Backend& backend);
  void take(const PieceEnd& end);
  void slice_failed(uint32_t path, uint32_t ways);
  void slice_landed(uint32_t path, uint32_t ways);
  void open_closed(const std::function<bool(const Closed&)>& is_meant);
  void open_closed_ways();
  void take_scheduler_events();
  void want_fence(uint32_t path);
  void way_failed(uint32_t way);
  void way_up(uint32_t way);
  void way_of_other_version(uint32_t way);
  void way_fenced(uint32_t way);
  void fenced(uint32_t path);
  bool is_up(const Path& path) const;
  void look_after_fences();
  void look_after_processes();
  bool ends_are_told() const;
  void lose_peer(uint64_t peer);
  void drop_peer_if_unused(uint64_t peer);
  bool is_unused(const Peer& peer) const;
  bool can_be_dropped(const Peer& peer) const;
  void drop_peer(uint64_t peer);
  void look_after_unused_peers();
  void request_ended(const RequestEnded& ended);
  uint64_t far_buffer(const Segment& segment, const Request& request) const;
  void release(uint64_t buffer);
  bool give_up_on_files();
  void give_up(uint64_t posting);

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
  std::vector<uint64_t> unwanted_;               // postings to be given up
  std::vector<Closed> closed_;
  std::vector<uint32_t> fences_wanted_;  // paths
  std::vector<uint32_t> fenced_below_;   // paths whose slices are still being copied
  std::vector<uint64_t> unused_;         // peers to be dropped once their work under way has ended
  std::unordered_map<uint64_t, size_t> uses_;  // requests, by buffer
  std::vector<uint64_t> ended_;
  uint64_t tokens_ = 0;
  /// Answers by token, to questions for files of this process; none: it is being opened.
  std::map<uint64_t, std::optional<FileOpened>> own_files_;
  TransferStatistics statistics_;
};

}  // namespace braid::transfer
