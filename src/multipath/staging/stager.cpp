#include "multipath/staging/stager.h"

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "cuda/queries.h"
#include "cuda/relaxed_capture.h"
#include "multipath/classify.h"
#include "multipath/native_copy.h"

namespace braid::multipath::staging {

// A piece of a copy, and the slot that it passes through.
struct Stager::Chunk {
  uint64_t offset = 0;
  uint64_t size_bytes = 0;
  int index = 0;
  uint64_t end() const { return offset + size_bytes; }
};

// The chunks of a copy to the host that have been asked for and not been copied out. Meanwhile the
// pool makes the pages that they are copied to.
struct Stager::Window {
  explicit Window(const Segment& whole) : fresh(whole.host, whole.size_bytes) {}
  FreshPages fresh;
  std::array<Chunk, kSlots> chunks;
  std::array<std::optional<ThreadPool::Task>, kSlots> populations;
  int first = 0;
  int next = 0;
  uint64_t end_bytes = 0;  // of all chunks asked for so far
  Chunk& chunk(int index) { return chunks[static_cast<size_t>(index % kSlots)]; }
  void begin_population(ThreadPool& pool, const Chunk& chunk) {
    const PageRange pages = fresh.find(chunk.offset, chunk.size_bytes);
    if (!pages.is_empty()) population(chunk.index).emplace(pool, pages);
  }
  void end_population(const Chunk& chunk) { population(chunk.index).reset(); }

 private:
  std::optional<ThreadPool::Task>& population(int index) {
    return populations[static_cast<size_t>(index % kSlots)];
  }
};

// What has carried a copy's chunks.
class Stager::Carriers {
 public:
  void add(const Outcome& chunk, uint64_t size_bytes) {
    if (chunk == Verdict::kFailed) error_ = chunk.error;
    bytes_[static_cast<size_t>(chunk.mover)] += size_bytes;
    via_ |= chunk.via;
    slice_bytes_ = std::max(slice_bytes_, chunk.slice_bytes);
  }
  Outcome outcome() const {
    Outcome outcome = Verdict::kStaged;
    const auto most = std::max_element(bytes_.begin(), bytes_.end());
    outcome.mover = static_cast<Mover>(most - bytes_.begin());
    outcome.via = via_;
    outcome.slice_bytes = slice_bytes_;
    return outcome;
  }
  /// Of a chunk that failed with bytes under way: the copy's answer.
  CUresult error() const { return error_; }

 private:
  CUresult error_ = CUDA_SUCCESS;
  std::array<uint64_t, kMoverCount> bytes_{};
  uint64_t via_ = 0;
  uint32_t slice_bytes_ = 0;
};

namespace {

uint8_t* host_at(const Batch& copy, uint64_t offset) {
  return static_cast<uint8_t*>(copy.first().host) + offset;
}

// From `host`, or to there, and the part of the copy at `offset` of the device memory.
Batch part_of(const Batch& copy, void* host, uint64_t offset, uint64_t size_bytes) {
  return {copy.direction, Segment{host, copy.first().device + offset, size_bytes}, copy.stream,
          copy.priority};
}

Batch rest_of(const Batch& copy, uint64_t offset) {
  return part_of(copy, host_at(copy, offset), offset, copy.first().size_bytes - offset);
}

// The driver answers for memory that is not there; copying it here would be a fault. Linux looks at
// the mappings only, and writes nothing (msync(2), MS_ASYNC).
bool is_mapped(const void* memory, uint64_t size_bytes) {
  const auto page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(memory) / page_bytes * page_bytes;
  const uintptr_t end = reinterpret_cast<uintptr_t>(memory) + size_bytes;
  return msync(reinterpret_cast<void*>(begin), end - begin, MS_ASYNC) == 0;
}

/// Those of the thread that asks first, as one does that starts CUDA. Once a process: a look opens
/// several files.
const UsableCpus& counted_cpus() {
  static const UsableCpus cpus = usable_cpus();
  return cpus;
}

/// Where the threads run: on the CPUs that the program's main thread has by now, as one does that
/// binds itself to the CPUs near its GPU; on those that were counted, if these are too few.
cpu_set_t cpus_now(const UsableCpus& counted, int threads) {
  cpu_set_t now;
  const bool has_enough =
      sched_getaffinity(getpid(), sizeof now, &now) == 0 && CPU_COUNT(&now) > threads;
  return has_enough ? now : counted.mask;
}

}  // namespace

Stager::Stager(const cuda::Driver& driver, const Options& options, Submitter& submitter)
    : driver_(driver),
      cpus_(counted_cpus()),
      threads_(threads_for(options)),
      least_bytes_(least_bytes(options)),
      submitter_(submitter),
      rings_(driver) {}

bool Stager::may_take(const Batch& batch, Verdict declined) {
  return batch.segments().size() == 1 && !batch.spares_sms && !batch.reads_in_order &&
         (declined == Verdict::kPageable || declined == Verdict::kBelowThreshold ||
          declined == Verdict::kNoRelay || declined == Verdict::kNotLinear);
}

int Stager::threads_for(const Options& options) {
  return options.pageable_threads >= 0 ? options.pageable_threads
                                       : default_thread_count(counted_cpus());
}

uint64_t Stager::least_bytes(const Options& options) {
  return threads_for(options) > 0 ? kThresholdBytes : UINT64_MAX;
}

bool Stager::is_staged(const Batch& copy) const {
  return copy.first().size_bytes >= least_bytes_ && is_pageable_copy(driver_, copy.first()) &&
         !cuda::is_capturing(driver_, copy.stream) &&
         is_mapped(copy.first().host, copy.first().size_bytes);
}

ThreadPool* Stager::pool() {
  std::call_once(pool_made_, [this] {
    const cpu_set_t cpus = cpus_now(cpus_, threads_);
    pool_ = std::make_unique<ThreadPool>(threads_, &cpus);
  });
  return pool_->is_usable() ? pool_.get() : nullptr;
}

std::optional<Staged> Stager::copy(const Batch& copy, bool is_synchronous) {
  if (!is_staged(copy) || pool() == nullptr) return std::nullopt;
  const cuda::RelaxedCapture relaxed(driver_);
  const bool to_device = copy.direction == Direction::kHostToDevice;
  CUcontext context = nullptr;
  if (driver_.cuStreamGetCtx(copy.stream, &context) != CUDA_SUCCESS) return std::nullopt;
  // What stands in the stream may write the source. A ring is borrowed only afterwards. If the wait
  // fails, nothing has moved, and the native copy gives the answer.
  if (is_synchronous && to_device && driver_.cuStreamSynchronize(copy.stream) != CUDA_SUCCESS)
    return std::nullopt;
  const RingPool::Loan loan = rings_.borrow(context, stream_key(driver_, context, copy.stream));
  if (!loan) return std::nullopt;
  Ring& ring = *loan;
  Carriers carriers;
  const uint64_t moved_bytes = to_device ? send(ring, copy, carriers) : fetch(ring, copy, carriers);
  Staged staged{.outcome = carriers.outcome()};
  if (carriers.error() != CUDA_SUCCESS)
    staged.result = carriers.error();
  else if (moved_bytes != copy.first().size_bytes || ring.is_broken())
    staged.result = finish_natively(ring, rest_of(copy, moved_bytes));
  else if (is_synchronous && to_device)
    staged.result = driver_.cuStreamSynchronize(copy.stream);
  return staged;
}

// Empty when nothing is left.
Stager::Chunk Stager::next_chunk(const Batch& copy, uint64_t offset, int index) {
  const uint64_t left_bytes = copy.first().size_bytes - offset;
  return {offset, left_bytes > 0 ? chunk_bytes(copy.direction, index, left_bytes) : 0, index};
}

// What is staged is one chunk ahead of what is sent, so that the thread pool works while this
// thread enqueues.
uint64_t Stager::send(Ring& ring, const Batch& copy, Carriers& carriers) {
  uint64_t sent_bytes = 0;
  Chunk ready;  // staged, and not sent yet
  for (int index = 0; sent_bytes < copy.first().size_bytes; ++index) {
    const Chunk next = next_chunk(copy, ready.end(), index);
    if (!ring.wait(index)) break;
    ThreadPool::Task staging(*pool_, ring.slot(index), host_at(copy, next.offset), next.size_bytes,
                             Stores::kCached);
    if (ready.size_bytes > 0) {
      if (!enqueue(ring, copy, ready, carriers)) break;
      sent_bytes = ready.end();
      if (!ring.fence(ready.index, copy.stream)) break;
    }
    staging.finish();
    ready = next;
  }
  return sent_bytes;
}

uint64_t Stager::fetch(Ring& ring, const Batch& copy, Carriers& carriers) {
  uint64_t landed_bytes = 0;
  Window window(copy.first());
  bool is_asking = ask_ahead(ring, copy, window, carriers);
  while (window.first != window.next && ring.wait(window.first)) {
    const Chunk& chunk = window.chunk(window.first);
    window.end_population(chunk);
    ThreadPool::Task landing(*pool_, host_at(copy, chunk.offset), ring.slot(chunk.index),
                             chunk.size_bytes, Stores::kPastCaches);
    is_asking = is_asking && ask_ahead(ring, copy, window, carriers);
    landing.finish();
    landed_bytes = chunk.end();
    ++window.first;
    is_asking = is_asking && ask_ahead(ring, copy, window, carriers);
  }
  return landed_bytes;
}

// Fills the slots whose chunks have been copied out.
bool Stager::ask_ahead(Ring& ring, const Batch& copy, Window& window, Carriers& carriers) {
  while (window.end_bytes < copy.first().size_bytes && window.next - window.first < kSlots) {
    const Chunk chunk = next_chunk(copy, window.end_bytes, window.next);
    window.begin_population(*pool_, chunk);
    if (!ring.wait(chunk.index) || !enqueue(ring, copy, chunk, carriers) ||
        !ring.fence(chunk.index, copy.stream))
      return false;
    window.chunk(window.next++) = chunk;
    window.end_bytes = chunk.end();
  }
  return true;
}

// In the order of the stream, between the chunk's slot and its place on the device. A chunk that
// has failed is not copied again: what a relay still carries of it might land afterwards.
bool Stager::enqueue(Ring& ring, const Batch& copy, const Chunk& chunk, Carriers& carriers) const {
  const Batch piece = part_of(copy, ring.slot(chunk.index), chunk.offset, chunk.size_bytes);
  const Outcome outcome = submitter_.submit(piece);
  carriers.add(outcome, chunk.size_bytes);
  if (outcome == Verdict::kFailed) {
    ring.lose();
    return false;
  }
  return outcome == Verdict::kAccelerated || copy_natively(driver_, piece) == CUDA_SUCCESS;
}

// Waits for the end: part of the host memory may be pinned, and the driver then returns before it
// has touched all of it. And when the stream has passed, so has whatever used the ring.
CUresult Stager::finish_natively(Ring& ring, const Batch& rest) const {
  CUresult result = rest.first().size_bytes > 0 ? copy_natively(driver_, rest) : CUDA_SUCCESS;
  if (result == CUDA_SUCCESS) result = driver_.cuStreamSynchronize(rest.stream);
  if (result == CUDA_SUCCESS) ring.mend();
  return result;
}

void Stager::forget_context(CUcontext context, ContextRegistry::End how) {
  rings_.forget_context(context, how);
}

void Stager::close() { rings_.close(); }

}  // namespace braid::multipath::staging
