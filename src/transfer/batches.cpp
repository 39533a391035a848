// Engine: requests, from their submission to their outcome.
#include <algorithm>
#include <utility>

#include "base/try.h"
#include "transfer/engine.h"
#include "transfer/failure.h"
#include "transfer/providers.h"

namespace braid::transfer {
namespace {

constexpr uint64_t kFileAlignment = 4096;  // of O_DIRECT

Cause cause_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::kDone: return Cause::kNone;
    case Outcome::kCancelled: return Cause::kCancelled;
    case Outcome::kDeadline: return Cause::kDeadline;
    case Outcome::kPeerLost:
    case Outcome::kUnreachable: return Cause::kPeerLost;
    case Outcome::kFailed: return Cause::kPathFailed;
  }
  return Cause::kPathFailed;
}

/// The way of an event that is not a PieceEnd.
uint32_t way_of(const BackendEvent& event) {
  if (const auto* failed = std::get_if<WayFailed>(&event)) return failed->way;
  if (const auto* fenced = std::get_if<WayFenced>(&event)) return fenced->way;
  if (const auto* up = std::get_if<WayUp>(&event)) return up->way;
  if (const auto* other = std::get_if<WayOfOtherVersion>(&event)) return other->way;
  return std::get<OwnerLost>(event).way;
}

}  // namespace

// ---- Submitting ----

Result<uint64_t> Engine::submit(const std::vector<Request>& requests,
                                std::optional<NotificationRequest> notification) {
  uint64_t told = 0;
  if (notification) {
    BRAID_LET(promised, promise(*notification));
    told = promised;
  }
  const uint64_t id = batches_.add({});
  Batch& batch = *batches_.find(id);
  batch.requests.resize(requests.size());
  batch.running.resize(requests.size());
  batch.status.request_count = requests.size();
  batch.notification = std::move(notification);
  batch.told = told;
  for (size_t i = 0; i < requests.size(); ++i) start(id, i, requests[i]);
  if (requests.empty()) batch_ended(id, batch);
  post_all();
  return id;
}

/// Reserves room for a notification, so that none is lost for lack of room. The owner stays known
/// until it has been notified.
Result<uint64_t> Engine::promise(const NotificationRequest& notification) {
  const Segment* segment = segments_.find(notification.segment);
  if (segment == nullptr)
    return failure(Cause::kNoSegment, "the notification is for no segment (any more)");
  Peer& peer = *peers_.find(segment->peer);
  const size_t due = peer.notifications + fabric_.unanswered(peer.who);
  if (due >= NotificationSender::kUnansweredMax)
    return failure(Cause::kTooMuch,
                   "as many as " + std::to_string(due) +
                       " notifications to this owner are under way, the limit",
                   "Submit it again once the owner has taken some");
  ++peer.notifications;
  return segment->peer;
}

Cause Engine::check_request(const Request& request, const Segment*& segment,
                            const Buffer*& buffer) const {
  segment = segments_.find(request.segment);
  if (segment == nullptr) return Cause::kNoSegment;
  if (peers_.find(segment->peer)->is_lost) return Cause::kPeerLost;
  buffer =
      owned_->buffers.containing(reinterpret_cast<uint64_t>(request.local), request.size_bytes);
  if (buffer == nullptr) return Cause::kLocalMemory;
  if (request.address > kNever - request.size_bytes) return Cause::kOutside;
  if (request.deadline_ns <= now_ns_) return Cause::kDeadline;
  return running_.size() < options_.requests_max ? Cause::kNone : Cause::kTooMuch;
}

void Engine::start(uint64_t batch, size_t index, const Request& request) {
  const Segment* segment = nullptr;
  const Buffer* buffer = nullptr;
  Cause wrong = check_request(request, segment, buffer);
  Ends ends;
  uint32_t ways = 0;
  if (wrong == Cause::kNone && request.size_bytes > 0) {
    ends = {request.operation, endpoint_of(*buffer),
            endpoint_of(*segment, request.address, request.size_bytes)};
    wrong = ways_between(segment->peer, ends, ways);
  }
  if (wrong != Cause::kNone || request.size_bytes == 0) return end(batch, index, wrong, 0);
  Running running;
  running.peer = segment->peer;
  running.batch = batch;
  running.index = index;
  running.operation = request.operation;
  running.buffer = buffer->id;
  running.far = far_buffer(*segment, request);
  ++uses_[running.buffer];
  if (running.far != 0) ++uses_[running.far];
  running.local = {static_cast<std::byte*>(request.local), request.size_bytes};
  running.address = request.address;
  running.file = segment->file;
  running.ways = ways;
  const uint64_t number = running_.add(std::move(running));
  batches_.find(batch)->running[index] = number;
  ++peers_.find(segment->peer)->requests;
  RequestSpec spec;
  spec.id = number;
  spec.peer = segment->peer;
  spec.size_bytes = request.size_bytes;
  spec.urgency = request.urgency;
  spec.ways = ways;
  const Peer& peer = *peers_.find(segment->peer);
  const bool is_here_on_gpu = ends.here.place.is_gpu, is_there_on_gpu = ends.there.place.is_gpu;
  if (peer.is_self && !ends.there.is_file && (is_here_on_gpu || is_there_on_gpu))
    spec.slice_bytes_min = kCopyBytesMin;
  if (!peer.is_self && peer.is_here && is_here_on_gpu && is_there_on_gpu)
    spec.slice_bytes_min = kPeerCopyBytesMin;
  if (segment->file != 0) spec.alignment_bytes = kFileAlignment;
  spec.source = static_cast<uint32_t>(batch);  // batches take turns
  spec.address = request.address;
  spec.deadline_ns = request.deadline_ns;
  spec.is_whole = is_doubtful(*segment, request);
  scheduler_.add(std::move(spec), now_ns_);
}

/// The buffer at the far end if that is this process: copies use it too, so it stays until they
/// have ended.
uint64_t Engine::far_buffer(const Segment& segment, const Request& request) const {
  if (!peers_.find(segment.peer)->is_self || segment.file != 0) return 0;
  const Buffer* far = owned_->buffers.containing(request.address, request.size_bytes);
  return far == nullptr ? 0 : far->id;
}

void Engine::release(uint64_t buffer) {
  if (--uses_[buffer] == 0) uses_.erase(buffer);
}

/// Whether the request leaves a range of the owner, as far as is known here. Such a request goes as
/// one slice: otherwise slices of the inner part would be delivered before the outer part is
/// refused.
bool Engine::is_doubtful(const Segment& segment, const Request& request) const {
  if (segment.file == 0 && peers_.find(segment.peer)->is_self)
    return far_buffer(segment, request) == 0;
  const auto next = segment.ends.upper_bound(request.address);
  const bool reaches_next =
      next != segment.ends.end() && next->first - request.address < request.size_bytes;
  if (reaches_next || next == segment.ends.begin()) return reaches_next;
  const uint64_t end = std::prev(next)->second;
  return request.address < end && request.size_bytes > end - request.address;
}

Result<BatchStatus> Engine::status(uint64_t id) const {
  const Batch* batch = batches_.find(id);
  if (batch == nullptr) return Status::error("there is no such batch (any more)");
  return batch->status;
}

Result<std::vector<RequestStatus>> Engine::outcomes(uint64_t id) const {
  const Batch* batch = batches_.find(id);
  if (batch == nullptr) return Status::error("there is no such batch (any more)");
  return batch->requests;
}

Status Engine::cancel(uint64_t id) {
  const Batch* batch = batches_.find(id);
  if (batch == nullptr) return Status::error("there is no such batch (any more)");
  const std::vector<uint64_t> running = batch->running;
  for (const uint64_t request : running)
    if (request != 0) scheduler_.cancel(request, now_ns_);
  take_scheduler_events();
  return {};
}

Status Engine::forget(uint64_t id) {
  const Batch* batch = batches_.find(id);
  if (batch == nullptr) return Status::error("there is no such batch (any more)");
  if (!batch->status.has_ended())
    return Status::error("the batch has not ended", "Wait for it, or cancel it and wait");
  batches_.erase(id);
  return {};
}

std::vector<RequestStatus> Engine::take(uint64_t id) {
  std::vector<RequestStatus> outcomes = std::move(batches_.find(id)->requests);
  batches_.erase(id);
  return outcomes;
}

// ---- Ending ----

void Engine::end(uint64_t id, size_t index, Cause cause, uint64_t delivered_bytes) {
  Batch& batch = *batches_.find(id);
  batch.running[index] = 0;
  batch.requests[index] = {true, cause, delivered_bytes};
  ++batch.status.ended_count;
  batch.status.failed_count += cause != Cause::kNone;
  ++(cause == Cause::kNone ? statistics_.requests_done : statistics_.requests_failed);
  if (batch.status.has_ended()) batch_ended(id, batch);
}

void Engine::batch_ended(uint64_t id, Batch& batch) {
  ended_.push_back(id);
  if (!batch.notification) return;
  const NotificationRequest notification = *std::exchange(batch.notification, std::nullopt);
  Peer& peer = *peers_.find(batch.told);
  --peer.notifications;
  if (batch.status.failed_count == 0 && !peer.is_lost)
    (void)fabric_.notify(peer.who, notification.name, notification.payload);
  drop_peer_if_unused(batch.told);
}

void Engine::request_ended(const RequestEnded& ended) {
  const Running* found = running_.find(ended.request);
  if (found == nullptr) return;
  const Running running = *found;
  running_.erase(ended.request);
  release(running.buffer);
  if (running.far != 0) release(running.far);
  --peers_.find(running.peer)->requests;
  Cause cause = cause_of(ended.outcome);
  if (cause != Cause::kNone && running.cause != Cause::kNone) cause = running.cause;
  const bool is_write = running.operation == Operation::kWrite;
  (is_write ? statistics_.bytes_written : statistics_.bytes_read) += ended.delivered_bytes;
  statistics_.reissued_slices += ended.reissued;
  end(running.batch, running.index, cause, ended.delivered_bytes);
  drop_peer_if_unused(running.peer);
}

// ---- Steps ----

bool Engine::step(uint64_t now_ns) {
  now_ns_ = now_ns;
  bool is_busy = fabric_.step(now_ns);
  is_busy = memory_.step(now_ns) || is_busy;
  is_busy = mapped_.step(now_ns) || is_busy;
  is_busy = owned_->exports.step() || is_busy;
  is_busy = owned_->jobs->step() || is_busy;
  if (owned_->gpu != nullptr) is_busy = owned_->gpu->step() || is_busy;
  is_busy = file_.step(now_ns) || is_busy;
  if (gpu_) is_busy = gpu_->step(now_ns) || is_busy;
  take(fabric_);
  take(memory_);
  take(mapped_);
  take(file_);
  if (gpu_) take(*gpu_);
  if (through_)
    for (const PieceEnd& end : through_->take_ends()) take(end);
  look_after_processes();
  look_after_fences();
  look_after_unused_peers();
  open_closed_ways();
  mapped_.look(now_ns);
  if (options_.shares != nullptr) options_.shares->look(scheduler_, rail_numbers_, now_ns);
  post_all();
  return give_up_on_files() || is_busy;
}

void Engine::post_all() {
  // A stalled GPU does not count against a rail.
  if (through_)
    for (const auto& [path, copies] : through_->copying()) scheduler_.spare(path, now_ns_);
  while (const std::optional<transfer::Posting> posting = scheduler_.next(now_ns_)) {
    const Running& running = *running_.find(posting->request);
    Path& path = paths_.at(posting->path);
    posted_[posting->id] = {posting->request, posting->path};
    ++path.open;
    ++statistics_.slices;
    Piece piece;
    piece.id = posting->id;
    piece.operation = running.operation;
    piece.buffer = running.buffer;
    piece.local = running.local.subspan(posting->offset, posting->size_bytes);
    piece.address = running.address + posting->offset;
    piece.file = running.file;
    if (path.is_through_host)
      through_->post(*path.backend, posting->path, path.backend_way, piece);
    else
      path.backend->post(path.backend_way, piece);
  }
  while (const std::optional<Probe> probe = scheduler_.next_probe(now_ns_))
    if (const auto path = paths_.find(probe->path); path != paths_.end())
      path->second.backend->probe(path->second.backend_way, probe->id);
  fabric_.push();
  take_scheduler_events();
}

void Engine::take(Backend& backend) {
  for (const BackendEvent& event : backend.take_events()) {
    if (const auto* end = std::get_if<PieceEnd>(&event)) {
      if (!through_ || !through_->take(*end)) take(*end);
    } else if (!paths_.contains(way_of(event))) {
      continue;  // of a peer that was dropped
    } else if (const auto* failed = std::get_if<WayFailed>(&event)) {
      way_failed(failed->way);
    } else if (const auto* fenced = std::get_if<WayFenced>(&event)) {
      way_fenced(fenced->way);
    } else if (const auto* up = std::get_if<WayUp>(&event)) {
      way_up(up->way);
    } else if (const auto* other = std::get_if<WayOfOtherVersion>(&event)) {
      way_of_other_version(other->way);
    } else {
      lose_peer(paths_.at(std::get<OwnerLost>(event).way).peer);
    }
  }
}

void Engine::take(const PieceEnd& end) {
  const auto posted = posted_.find(end.id);
  const bool is_the_owners = end.cause != Cause::kNone && end.cause != Cause::kPathFailed;
  if (posted != posted_.end()) {
    Running* running = running_.find(posted->second.request);
    if (is_the_owners && running != nullptr && running->cause == Cause::kNone &&
        !scheduler_.is_stopped(posted->second.request)) {
      running->cause = end.cause;
      scheduler_.cancel(posted->second.request, now_ns_);
    }
    const auto path = paths_.find(posted->second.path);
    if (path != paths_.end() && end.may_land) path->second.may_land = true;
    if (path != paths_.end()) --path->second.open;
    if (path != paths_.end() && running != nullptr) {
      if (end.is_unexplained) slice_failed(path->first, running->ways);
      if (end.cause == Cause::kNone) slice_landed(path->first, running->ways);
    }
    posted_.erase(posted);
  }
  const Ending how = end.cause == Cause::kNone ? Ending::kDone
                     : is_the_owners           ? Ending::kRejected
                     : end.may_land            ? Ending::kLost
                                               : Ending::kFailed;
  scheduler_.ended(end.id, how, now_ns_);
}

void Engine::take_scheduler_events() {
  while (const std::optional<SchedulerEvent> event = scheduler_.next_event()) {
    if (const auto* ended = std::get_if<RequestEnded>(&*event))
      request_ended(*ended);
    else if (const auto* unwanted = std::get_if<PostingUnwanted>(&*event); unwanted != nullptr)
      unwanted_.push_back(unwanted->posting);
    else if (const auto* wanted = std::get_if<FenceWanted>(&*event); wanted != nullptr)
      if (paths_.contains(wanted->path)) want_fence(wanted->path);
  }
}

uint64_t Engine::next_deadline_ns() const {
  if (!unwanted_.empty()) return 0;
  uint64_t next_ns =
      std::min({fabric_.next_deadline_ns(), memory_.next_deadline_ns(), mapped_.next_deadline_ns(),
                mapped_.next_look_ns(), scheduler_.next_deadline_ns()});
  for (const Closed& closed : closed_) next_ns = std::min(next_ns, closed.until_ns);
  for (const uint32_t path : fences_wanted_) next_ns = std::min(next_ns, paths_.at(path).fence_ns);
  if (running_.size() > 0 && !ends_are_told()) next_ns = std::min(next_ns, look_at_processes_ns_);
  if (options_.shares != nullptr) next_ns = std::min(next_ns, options_.shares->next_ns());
  return next_ns;
}

}  // namespace braid::transfer
