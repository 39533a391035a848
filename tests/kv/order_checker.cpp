#include "kv/order_checker.h"

#include <algorithm>

namespace braid::kv::test {
namespace {

OrderChecker* checker = nullptr;

}  // namespace

cuda::Driver OrderChecker::watch(const cuda::Driver& real) {
  checker = this;
  real_ = real;
  cuda::Driver watched = real;
  watched.cuStreamWaitEvent = stream_wait_event;
  watched.cuEventRecord = event_record;
  watched.cuEventQuery = event_query;
  watched.cuStreamQuery = stream_query;
  watched.cuStreamSynchronize = stream_synchronize;
  return watched;
}

void OrderChecker::join(Clock& clock, const Clock& other) {
  for (const auto& [stream, time] : other) clock[stream] = std::max(clock[stream], time);
}

// What the host knew when it enqueued the operation has happened before it.
void OrderChecker::begin_operation(CUstream stream, std::string who) {
  Clock& clock = streams_[stream];
  join(clock, host_);
  ++clock[stream];
  operations_[stream] = std::move(who);
}

void OrderChecker::reads(CUstream stream, uint64_t address) { access(stream, address, false); }
void OrderChecker::writes(CUstream stream, uint64_t address) { access(stream, address, true); }

void OrderChecker::access(CUstream stream, uint64_t address, bool is_write) {
  const Access now{stream, streams_[stream][stream], operations_[stream]};
  Range& range = ranges_[address];
  compare(now, range.writes, is_write ? "writes what is written by" : "reads what is written by");
  if (!is_write) {
    range.reads.push_back(now);
    return;
  }
  compare(now, range.reads, "writes what is read by");
  range.reads.clear();
  range.writes = {now};
}

void OrderChecker::compare(const Access& now, const std::vector<Access>& before, const char* what) {
  for (const Access& earlier : before)
    if (earlier.time > streams_[now.stream][earlier.stream])
      conflicts_.push_back(now.who + " " + what + " " + earlier.who);
}

CUresult OrderChecker::stream_wait_event(CUstream stream, CUevent event, unsigned flags) {
  if (checker->has_gpu_failed_) return CUDA_ERROR_ILLEGAL_ADDRESS;
  if (checker->refused_.waits && checker->is_refused()) return CUDA_ERROR_UNKNOWN;
  if (checker->forgets_waits_) return CUDA_SUCCESS;
  const CUresult result = checker->real_.cuStreamWaitEvent(stream, event, flags);
  if (result == CUDA_SUCCESS) join(checker->streams_[stream], checker->events_[event]);
  return result;
}

CUresult OrderChecker::event_record(CUevent event, CUstream stream) {
  if (checker->has_gpu_failed_) return CUDA_ERROR_ILLEGAL_ADDRESS;
  if (checker->is_refused()) return CUDA_ERROR_UNKNOWN;
  const CUresult result = checker->real_.cuEventRecord(event, stream);
  if (result == CUDA_SUCCESS) checker->events_[event] = checker->streams_[stream];
  return result;
}

CUresult OrderChecker::event_query(CUevent event) {
  if (checker->has_gpu_failed_) return CUDA_ERROR_ILLEGAL_ADDRESS;
  if (checker->passes_events_early_) return CUDA_SUCCESS;
  const CUresult result = checker->real_.cuEventQuery(event);
  if (result == CUDA_SUCCESS) join(checker->host_, checker->events_[event]);
  return result;
}

CUresult OrderChecker::stream_query(CUstream stream) {
  if (checker->has_gpu_failed_) return CUDA_ERROR_ILLEGAL_ADDRESS;
  return checker->real_.cuStreamQuery(stream);
}

CUresult OrderChecker::stream_synchronize(CUstream stream) {
  if (checker->has_gpu_failed_) return CUDA_ERROR_ILLEGAL_ADDRESS;
  const CUresult result = checker->real_.cuStreamSynchronize(stream);
  if (result == CUDA_SUCCESS) join(checker->host_, checker->streams_[stream]);
  return result;
}

Status WatchedCopier::copy(std::span<const library::Copy> copies, CUstream stream,
                           Urgency urgency) {
  checker_.begin_operation(stream, urgency == Urgency::kUrgent ? "an urgent batch" : "a batch");
  for (const library::Copy& copy : copies) {
    for (uint64_t at = 0; at < copy.size_bytes; at += segment_bytes_) {
      checker_.reads(stream, copy.source + at);
      checker_.writes(stream, copy.destination + at);
    }
  }
  return inner_->copy(copies, stream, urgency);
}

}  // namespace braid::kv::test
