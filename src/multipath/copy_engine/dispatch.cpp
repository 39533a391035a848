#include "multipath/copy_engine/dispatch.h"

#include <algorithm>
#include <bit>

#include "cuda/kernels/congestion.h"

namespace braid::multipath::copy_engine {
namespace {

// Copy engines take turns between streams, and blocks share a link with them: beside one other
// stream, either's slices take twice as long. What is said of kernels holds here too.
constexpr double kCongested = cuda::kCongested;
constexpr double kLearns = cuda::kPaceLearns;
constexpr double kForgetsInNs = cuda::kPaceForgetsInNs;
// Several slices, beside which the thread's own lateness is small.
constexpr uint64_t kSampleBytes = 16 << 20;
// The period that a congested link waits, in samples' times.
constexpr uint64_t kRestFactor = 4;

constexpr size_t kMaxReturned = 256;

}  // namespace

Dispatch::Dispatch(Policy policy, size_t max_jobs, uint32_t most_pieces)
    : policy_(std::move(policy)),
      pace_(policy_.costs, policy_.slice_bytes, kRelayBufferBytes),
      most_pieces_(most_pieces) {
  for (Queue& queue : queues_) queue.reserve(max_jobs);
  for (std::vector<Slice>& slices : returned_) slices.reserve(kMaxReturned);
}

void Dispatch::add(const Job& job) {
  Waiting waiting;
  waiting.job = job;
  waiting.job.relays &= ~(1u << job.target);
  waiting.arrival = arrivals_++;
  waiting.size_bytes = job.pieces.back().offset + job.pieces.back().size_bytes;
  if (job.pieces.size() > 1) waiting.piece_bytes = waiting.size_bytes / job.pieces.size();
  if (!policy_.split.empty()) set_quotas(waiting);
  Queue& queue = queues_[index(job.target, job.direction)];
  const auto behind = std::find_if(queue.begin(), queue.end(), [&](const Waiting& other) {
    return other.job.priority < job.priority;
  });
  queue.insert(behind, waiting);
}

void Dispatch::set_quotas(Waiting& waiting) const {
  uint64_t total = 0;
  for (const uint32_t share : policy_.split) total += share;
  uint64_t left = waiting.size_bytes;
  size_t path = 1;
  for (int gpu = 0; gpu < kMaxGpus && path < policy_.split.size(); ++gpu) {
    if (gpu == waiting.job.target || (waiting.job.relays >> gpu & 1) == 0) continue;
    waiting.quota[gpu] = waiting.size_bytes / total * policy_.split[path++];
    left -= waiting.quota[gpu];
  }
  waiting.quota[waiting.job.target] = left;
}

void Dispatch::remove(uint32_t job) {
  for (Queue& queue : queues_)
    std::erase_if(queue, [&](const Waiting& waiting) { return waiting.job.id == job; });
  for (std::vector<Slice>& slices : returned_)
    std::erase_if(slices, [&](const Slice& slice) { return slice.job == job; });
}

std::optional<Slice> Dispatch::pull(int gpu, Direction direction, uint64_t now_ns, bool can_relay) {
  Link& link = links_[index(gpu, direction)];
  if (link.under_way >= Pace::kMostDepth) return {};
  const bool rests = policy_.yields && link.rests_until_ns > now_ns;
  const bool may_relay = can_relay && !rests;
  std::optional<Slice> slice;
  if (!policy_.direct_first && may_relay) slice = pull_oldest(gpu, direction, now_ns);
  if (!slice) slice = pull_direct(gpu, direction, now_ns);
  if (!slice && may_relay && !has_direct_work(gpu, direction))
    slice = pull_relayed(gpu, direction, now_ns);
  if (!slice) return {};
  if (link.under_way++ == 0) {
    link.head_since_ns = now_ns;
    link.begin_sample(now_ns, other_way(index(gpu, direction)));
  }
  link.expected_us += slice->link_us;
  if (slice->is_direct()) ++link.direct_under_way;
  return slice;
}

std::optional<Slice> Dispatch::pull_direct(int gpu, Direction direction, uint64_t now_ns) {
  std::vector<Slice>& returned = returned_[index(gpu, direction)];
  if (!returned.empty()) {
    const Slice slice = returned.back();
    returned.pop_back();
    return slice;
  }
  Queue& queue = queues_[index(gpu, direction)];
  for (Waiting& waiting : queue)
    if (may_carry(waiting, gpu)) return cut(queue, waiting, gpu, now_ns);
  return {};
}

bool Dispatch::has_direct_work(int gpu, Direction direction) const {
  if (links_[index(gpu, direction)].direct_under_way > 0) return true;
  const Queue& queue = queues_[index(gpu, direction)];
  return std::any_of(queue.begin(), queue.end(),
                     [&](const Waiting& waiting) { return may_carry(waiting, gpu); });
}

// Of the most urgent. Queues are in that order themselves.
std::optional<Slice> Dispatch::pull_oldest(int gpu, Direction direction, uint64_t now_ns) {
  Queue* best_queue = nullptr;
  Waiting* best = nullptr;
  for (int target = 0; target < kMaxGpus; ++target) {
    Queue& queue = queues_[index(target, direction)];
    const auto first = std::find_if(queue.begin(), queue.end(), [&](const Waiting& waiting) {
      return may_carry(waiting, gpu);
    });
    if (first == queue.end() || (best != nullptr && !first->goes_before(*best))) continue;
    best_queue = &queue;
    best = &*first;
  }
  if (best == nullptr) return {};
  return cut(*best_queue, *best, gpu, now_ns);
}

std::optional<Slice> Dispatch::pull_relayed(int gpu, Direction direction, uint64_t now_ns) {
  Queue* best = nullptr;
  uint64_t best_bytes = 0;
  for (int target = 0; target < kMaxGpus; ++target) {
    if (target == gpu) continue;
    Queue& queue = queues_[index(target, direction)];
    const uint64_t bytes = bytes_for(queue, gpu);
    if (bytes == 0) continue;
    const bool is_favoured =
        policy_.relay_order == RelayOrder::kFavourTarget && target == policy_.favoured_gpu;
    if (bytes > best_bytes || is_favoured) best = &queue;
    best_bytes = std::max(best_bytes, bytes);
    if (is_favoured) break;
  }
  if (best == nullptr) return {};
  for (Waiting& waiting : *best)
    if (may_carry(waiting, gpu)) return cut(*best, waiting, gpu, now_ns);
  return {};
}

bool Dispatch::may_carry(const Waiting& waiting, int gpu) const {
  const uint32_t relays = waiting.job.relays & ~dropped_;
  if (gpu != waiting.job.target && (relays >> gpu & 1) == 0) return false;
  return policy_.split.empty() || waiting.quota[gpu] > 0;
}

uint64_t Dispatch::bytes_for(const Queue& queue, int gpu) const {
  uint64_t bytes = 0;
  for (const Waiting& waiting : queue)
    if (may_carry(waiting, gpu)) bytes += waiting.left_bytes();
  return bytes;
}

// A link with direct work of its own does not help, and slices need not be small for its sake.
Remainder Dispatch::rest_of(const Waiting& waiting, int gpu) const {
  const Job& job = waiting.job;
  Remainder rest{job.direction, waiting.left_bytes(), waiting.piece_bytes, 1, 0, gpu == job.target};
  for (uint32_t relays = job.relays & ~dropped_; relays != 0; relays &= relays - 1) {
    const int relay = std::countr_zero(relays);
    const bool is_busy = policy_.direct_first && has_direct_work(relay, job.direction);
    ++(is_busy ? rest.busy_links : rest.links);
  }
  return rest;
}

// Nothing when the link has enough under way.
std::optional<Slice> Dispatch::cut(Queue& queue, Waiting& waiting, int gpu, uint64_t now_ns) const {
  const Remainder rest = rest_of(waiting, gpu);
  uint64_t wanted = std::min(pace_.slice_bytes(rest), waiting.left_bytes());
  if (!policy_.split.empty()) wanted = std::min(wanted, waiting.quota[gpu]);
  const Link& link = links_[index(gpu, rest.direction)];
  if (link.under_way > 0 && link.left_us(now_ns) > pace_.lead_us(rest, wanted)) return {};
  Slice slice;
  slice.job = waiting.job.id;
  slice.target = waiting.job.target;
  slice.via = gpu;
  slice.direction = waiting.job.direction;
  slice.offset = waiting.next_offset;
  slice.first_piece = waiting.next_piece;
  const std::span<const Piece> pieces = waiting.job.pieces;
  for (uint32_t taken = 0; taken < most_pieces_ && slice.size_bytes < wanted; ++taken) {
    const Piece& piece = pieces[waiting.next_piece];
    const uint64_t end = piece.offset + piece.size_bytes;
    const uint64_t take = std::min(wanted - slice.size_bytes, end - waiting.next_offset);
    slice.size_bytes += take;
    waiting.next_offset += take;
    if (waiting.next_offset == end) ++waiting.next_piece;
  }
  slice.link_us = pace_.link_us(rest, slice.size_bytes);
  slice.paths = rest.links + rest.busy_links;
  if (!policy_.split.empty()) waiting.quota[gpu] -= slice.size_bytes;
  if (waiting.left_bytes() == 0) queue.erase(queue.begin() + (&waiting - queue.data()));
  return slice;
}

void Dispatch::link_done(const Slice& slice, uint64_t now_ns) {
  Link& link = links_[index(slice.via, slice.direction)];
  link.expected_us = --link.under_way == 0 ? 0 : link.expected_us - slice.link_us;
  link.head_since_ns = now_ns;
  if (slice.is_direct()) --link.direct_under_way;
  link.drained_bytes += slice.size_bytes;
  link.drained_us += slice.link_us;
  link.moved_bytes += slice.size_bytes;
  link.paths = slice.paths;
}

void Dispatch::settle(uint64_t now_ns) {
  for (size_t i = 0; i < links_.size(); ++i) {
    Link& link = links_[i];
    if (link.drained_bytes < kSampleBytes || now_ns <= link.busy_since_ns) continue;
    const auto took_ns = static_cast<double>(now_ns - link.busy_since_ns);
    const double slowness = took_ns * 1e-3 / link.drained_us;
    const bool is_both_ways =
        other_way(i).moved_bytes - link.moved_back > link.drained_bytes / cuda::kBothWaysPart;
    double& usual = link.usual_slowness[static_cast<size_t>(link.paths) - 1][is_both_ways];
    if (usual == 0) usual = slowness;
    const bool is_congested = slowness > kCongested * usual;
    usual += is_congested ? usual * took_ns / kForgetsInNs : (slowness - usual) * kLearns;
    // Once may be this thread's own lateness.
    const bool is_again = is_congested && link.was_congested;
    link.was_congested = is_congested;
    if (is_again) link.rests_until_ns = now_ns + (now_ns - link.busy_since_ns) * kRestFactor;
    link.begin_sample(now_ns, other_way(i));
  }
}

void Dispatch::take_back(const Slice& slice) {
  Slice back = slice;
  back.via = slice.target;
  ++back.attempts;
  returned_[index(slice.target, slice.direction)].push_back(back);
}

uint64_t Dispatch::waiting_bytes(Direction direction) const {
  uint64_t bytes = 0;
  for (int gpu = 0; gpu < kMaxGpus; ++gpu)
    for (const Waiting& waiting : queues_[index(gpu, direction)]) bytes += waiting.left_bytes();
  return bytes;
}

}  // namespace braid::multipath::copy_engine
