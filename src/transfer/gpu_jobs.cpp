#include "transfer/gpu_jobs.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <thread>
#include <utility>

namespace braid::transfer {
namespace {

/// From about this size on, several links carry a copy faster than one. The driver makes smaller
/// copies.
constexpr uint64_t kCarriedBytesMin = 1 << 20;

}  // namespace

GpuJobs::GpuJobs(std::shared_ptr<fabric::gpu::Carrier> carrier)
    : carrier_(std::move(carrier)),
      told_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      ended_(std::make_shared<fabric::gpu::Ended>(told_.get())) {}

GpuJobs::~GpuJobs() {
  wait_for_all();
  jobs_ = {};
  queues_.clear();
  lane_ends_.wait();
}

void GpuJobs::wait_for_all() {
  size_t under_way = 0;
  for (auto& [lane, queue] : queues_) under_way += std::exchange(queue.under_way, 0);
  while (under_way > 0) {
    ended_now_.clear();
    if (ended_->take(ended_now_))
      under_way -= ended_now_.size();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

void GpuJobs::add(const std::shared_ptr<fabric::gpu::Lane>& lane) {
  const auto [queue, is_new] = queues_.try_emplace(lane);
  ++queue->second.buffers;
  lane_ends_.add(*lane);
  if (!is_new || carrier_ == nullptr) return;
  lane->run([carrier = carrier_](CUresult context) {
    if (context == CUDA_SUCCESS) carrier->prepare();
  });
}

bool GpuJobs::remove(const std::shared_ptr<fabric::gpu::Lane>& lane) {
  const auto queue = queues_.find(lane);
  if (--queue->second.buffers > 0 || !lane->is_programs()) return false;
  if (carrier_ != nullptr)
    lane->run([carrier = carrier_](CUresult context) {
      if (context == CUDA_SUCCESS) carrier->forget();
    });
  queues_.erase(queue);
  return true;
}

void GpuJobs::start(GpuJob job) {
  Queue& queue = queues_.at(job.lane);
  const uint64_t number = jobs_.add({std::move(job), false});
  if (queue.is_careful)
    queue.waiting.push_back(number);
  else
    begin(number, queue);
}

void GpuJobs::begin(uint64_t number, Queue& queue) {
  const GpuJob& job = jobs_.find(number)->job;
  fabric::gpu::Copy copy;
  copy.to = reinterpret_cast<CUdeviceptr>(job.to);
  copy.from = reinterpret_cast<CUdeviceptr>(job.from);
  copy.size_bytes = job.size_bytes;
  copy.tag = number;
  copy.ended = ended_;
  copy.regions = job.regions;
  copy.uses_bounce_buffer = job.uses_bounce_buffer;
  const bool is_carried =
      job.kind != fabric::gpu::CopyKind::kBetweenGpus && job.size_bytes >= kCarriedBytesMin;
  if (is_carried) copy.carrier = carrier_.get();
  ++queue.under_way;
  job.lane->copy(job.kind, std::move(copy));
}

bool GpuJobs::step() {
  ended_now_.clear();
  if (!ended_->take(ended_now_)) return false;
  for (const auto& [number, ok] : std::exchange(ended_now_, {})) {
    Job& job = *jobs_.find(number);
    Queue& queue = queues_.at(job.job.lane);
    --queue.under_way;
    if (!ok && !job.is_alone) {
      queue.is_careful = true;
      queue.again.push_back(number);
    } else {
      const auto ended = std::move(job.job.ended);
      jobs_.erase(number);
      ended(ok);
    }
    advance(queue);
  }
  return true;
}

/// Failed copies go first, one by one, then the copies that came since.
void GpuJobs::advance(Queue& queue) {
  if (!queue.is_careful || queue.under_way > 0) return;
  if (!queue.again.empty()) {
    const uint64_t number = queue.again.front();
    queue.again.pop_front();
    jobs_.find(number)->is_alone = true;
    return begin(number, queue);
  }
  queue.is_careful = false;
  for (const uint64_t number : std::exchange(queue.waiting, {})) begin(number, queue);
}

bool GpuJobs::arm() {
  uint64_t count = 0;
  (void)!read(told_.get(), &count, sizeof count);
  return !ended_->has_some();
}

}  // namespace braid::transfer
