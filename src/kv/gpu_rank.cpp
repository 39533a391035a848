#include "kv/gpu_rank.h"

#include <iterator>
#include <string>

#include "base/try.h"
#include "base/units.h"
#include "cuda/relaxed_capture.h"
#include "cuda/scoped_context.h"
#include "host/memory_left.h"

namespace braid::kv {
namespace {

constexpr size_t kEventsAtFirst = 32;

// How many bytes there are from `address` to the end of the allocation that it lies in; 0: it lies
// in none. Of memory that is mapped in pieces the driver tells the end of what was reserved.
uint64_t bytes_from(const cuda::Driver& driver, uint64_t address) {
  unsigned type = 0;
  CUdeviceptr begin = 0;
  size_t size_bytes = 0;
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                      CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                      CU_POINTER_ATTRIBUTE_RANGE_SIZE};
  void* values[] = {&type, &begin, &size_bytes};
  const auto count = static_cast<unsigned>(std::size(attributes));
  const CUresult result = driver.cuPointerGetAttributes(count, attributes, values, address);
  return result == CUDA_SUCCESS && type != 0 ? begin + size_bytes - address : 0;
}

bool goes_on(const library::Copy& before, const library::Copy& copy) {
  return before.source + before.size_bytes == copy.source &&
         before.destination + before.size_bytes == copy.destination;
}

// Whether every segment of all slots lies in memory that the driver knows. What fails names the
// segment and its bytes.
Status check_cache(const cuda::Driver& driver, const RankOptions& options, const Layout& layout,
                   uint32_t gpu_slots) {
  const cuda::ScopedContext scope(driver, options.context);
  BRAID_TRY(driver.check(scope.status(), "entering the rank's context"));
  for (size_t i = 0; i < layout.segments().size(); ++i) {
    const Segment& segment = layout.segments()[i];
    const uint64_t first = options.cache + segment.gpu_base_bytes;
    const uint64_t size_bytes = segment.gpu_stride_bytes * (gpu_slots - 1) + segment.size_bytes;
    const uint64_t there = bytes_from(driver, first);
    if (there >= size_bytes && bytes_from(driver, first + size_bytes - 1) > 0) continue;
    return Status::error(
        "segment " + std::to_string(i) + " of a cache of " + std::to_string(gpu_slots) +
            " gpu_slots takes " + std::to_string(size_bytes) + " bytes, beginning " +
            std::to_string(segment.gpu_base_bytes) + " bytes behind the cache's address, and " +
            (there < size_bytes ? std::to_string(there) + " of them are" : "the last is not") +
            " allocated",
        "Give fewer gpu_slots, or the address and the segments of what was allocated");
  }
  return {};
}

// Before anything is pinned: what one rank has taken would be missing for the next.
Status check_host_memory(const GpuRank::Options& options) {
  const uint64_t wanted = options.layout.host_bytes(options.slots.host) * options.gpus.size();
  const uint64_t left = options.host_limit_bytes ? *options.host_limit_bytes : memory_left_bytes();
  if (wanted <= left) return {};
  const std::string pools = options.gpus.size() == 1
                                ? "the host pool is"
                                : std::to_string(options.gpus.size()) + " host pools are";
  return Status::error(pools + " to have " + format_size(wanted) + ", and the host has " +
                           format_size(left) + " left",
                       "Give fewer host slots");
}

}  // namespace

Result<std::vector<std::unique_ptr<GpuRank>>> GpuRank::open(const cuda::Driver& driver,
                                                            const Options& options,
                                                            Copier& copier) {
  for (const RankOptions& gpu : options.gpus)
    if (gpu.compute == nullptr || gpu.compute == CU_STREAM_LEGACY)
      return Status::error("the compute stream is the legacy default stream",
                           "Run the model in a stream of its own");
  // The handle names another stream in each thread, and any thread may submit a plan.
  for (const RankOptions& gpu : options.gpus)
    if (gpu.compute == CU_STREAM_PER_THREAD)
      return Status::error("the compute stream is the per-thread default stream",
                           "Run the model in a stream of its own");
  BRAID_TRY(check_host_memory(options));
  for (const RankOptions& gpu : options.gpus)
    BRAID_TRY(check_cache(driver, gpu, options.layout, options.slots.gpu));
  std::vector<std::unique_ptr<GpuRank>> ranks;
  for (const RankOptions& gpu : options.gpus) {
    ranks.push_back(std::unique_ptr<GpuRank>(new GpuRank(driver, gpu, options.layout, copier)));
    BRAID_TRY(ranks.back()->prepare(options.slots.host));
  }
  return ranks;
}

Status GpuRank::prepare(uint32_t host_slots) {
  const cuda::RelaxedCapture relaxed(driver_);
  const cuda::ScopedContext scope(driver_, options_.context);
  BRAID_TRY(driver_.check(scope.status(), "entering the rank's context"));
  BRAID_LET(host, HostPool::open(driver_, layout_.host_bytes(host_slots)));
  host_ = std::move(host);
  for (Line* line : {&down_, &up_})
    BRAID_TRY(driver_.check(driver_.cuStreamCreate(&line->stream, CU_STREAM_NON_BLOCKING),
                            "making a stream for copies"));
  while (events_.size() < kEventsAtFirst) {
    CUevent event = nullptr;
    BRAID_TRY(
        driver_.check(driver_.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "making an event"));
    events_.push_back(event);
  }
  return {};
}

GpuRank::~GpuRank() {
  const cuda::RelaxedCapture relaxed(driver_);
  const cuda::ScopedContext scope(driver_, options_.context);
  if (scope.status() != CUDA_SUCCESS) return;  // the context is gone, with everything in it
  synchronize();
  for (const Line* line : {&down_, &up_})
    if (line->stream != nullptr) driver_.cuStreamDestroy(line->stream);
  const auto retire = [this](CUevent event) { events_.push_back(event); };
  for (Line* line : {&steps_, &down_, &up_}) line->fences.clear(retire);
  for (const CUevent event : events_) driver_.cuEventDestroy(event);
  host_.reset();
}

void GpuRank::synchronize() {
  const cuda::RelaxedCapture relaxed(driver_);
  for (const Line* line : {&down_, &up_})
    if (line->stream != nullptr) driver_.cuStreamSynchronize(line->stream);
}

Result<CUevent> GpuRank::take_event() {
  CUevent event = nullptr;
  if (events_.empty()) {
    BRAID_TRY(
        driver_.check(driver_.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "making an event"));
    return event;
  }
  event = events_.back();
  events_.pop_back();
  return event;
}

Status GpuRank::record(Line& line, Mark mark) {
  const cuda::ScopedContext scope(driver_, options_.context);
  BRAID_TRY(driver_.check(scope.status(), "entering the rank's context"));
  BRAID_LET(event, take_event());
  const CUresult result = driver_.cuEventRecord(event, line.stream);
  if (result == CUDA_SUCCESS)
    line.fences.record(mark, event);
  else
    events_.push_back(event);
  return driver_.check(result, "recording how far a stream has come");
}

Status GpuRank::record_latest(Line& line) {
  return line.fences.recorded() < line.latest ? record(line, line.latest) : Status();
}

Status GpuRank::order(CUstream stream, const Marks& after) {
  const cuda::ScopedContext scope(driver_, options_.context);
  BRAID_TRY(driver_.check(scope.status(), "entering the rank's context"));
  BRAID_TRY(order(stream, steps_, after.step));
  BRAID_TRY(order(stream, down_, after.down));
  return order(stream, up_, after.up);
}

// Copies whose event was refused are in the stream all the same, and may land: what uses their
// slots must come behind them.
Status GpuRank::order(CUstream stream, Line& behind, Mark mark) {
  if (mark <= behind.fences.passed()) return {};
  if (behind.fences.recorded() < mark) BRAID_TRY(record_latest(behind));
  const auto event = behind.fences.find(mark);
  if (!event)
    return Status::of(BRAID_ERROR_CUDA, "no event stands behind what a stream is to wait for");
  return driver_.check(driver_.cuStreamWaitEvent(stream, *event, 0), "ordering a stream");
}

void GpuRank::list_copies(const CopyBatch& batch) {
  copies_.clear();
  const auto host = reinterpret_cast<uint64_t>(host_->data());
  for (const Segment& segment : layout_.segments()) {
    const size_t first = copies_.size();
    for (const SlotPair& block : batch.slots) {
      const uint64_t on_gpu =
          options_.cache + segment.gpu_base_bytes + segment.gpu_stride_bytes * block.gpu;
      const uint64_t on_host =
          host + layout_.host_stride_bytes() * block.host + segment.host_offset_bytes;
      const library::Copy copy = batch.direction == Direction::kDown
                                     ? library::Copy{on_host, on_gpu, segment.size_bytes}
                                     : library::Copy{on_gpu, on_host, segment.size_bytes};
      if (copies_.size() > first && goes_on(copies_.back(), copy))
        copies_.back().size_bytes += copy.size_bytes;
      else
        copies_.push_back(copy);
    }
  }
}

Status GpuRank::copy(const CopyBatch& batch) {
  Line& line = batch.direction == Direction::kDown ? down_ : up_;
  const cuda::ScopedContext scope(driver_, options_.context);
  Status copied = driver_.check(scope.status(), "entering the rank's context");
  if (copied.ok()) copied = order(line.stream, batch.after);
  line.latest = batch.mark;  // `order` may have put an event behind the batch before this one
  list_copies(batch);
  if (copied.ok()) copied = copier_.copy(copies_, line.stream, batch.urgency);
  // Even after a failure, the mark stands behind the copies that are in the stream.
  const Status recorded = record_latest(line);
  return copied.ok() ? recorded : copied;
}

// While a thread records a graph, the driver answers a question about an event with an error that
// looks like the GPU's.
Status GpuRank::poll(Progress& progress) {
  const cuda::RelaxedCapture relaxed(driver_);
  Status failure;
  const auto state_from = [&](CUresult result) {
    if (result == CUDA_SUCCESS) return EventState::kPassed;
    if (result == CUDA_ERROR_NOT_READY) return EventState::kPending;
    failure = driver_.check(result, "asking how far the GPU has come");
    return EventState::kFailed;
  };
  const auto state_of = [&](CUevent event) { return state_from(driver_.cuEventQuery(event)); };
  const auto retire = [this](CUevent event) { events_.push_back(event); };
  for (Line* line : {&down_, &up_}) (void)record_latest(*line);  // so that it passes
  for (Line* line : {&steps_, &down_, &up_})
    if (!line->fences.poll(state_of, retire)) return failure;
  // A failed context is noticed also while no event is pending.
  if (state_from(driver_.cuStreamQuery(down_.stream)) == EventState::kFailed) return failure;
  progress.passed = {steps_.fences.passed(), down_.fences.passed(), up_.fences.passed()};
  return {};
}

}  // namespace braid::kv
