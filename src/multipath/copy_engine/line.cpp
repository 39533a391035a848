#include "multipath/copy_engine/line.h"

#include <atomic>

namespace braid::multipath::copy_engine {
namespace {

bool reached(uint32_t seen, uint32_t number) { return static_cast<int32_t>(seen - number) >= 0; }

}  // namespace

Status Line::open(const cuda::Driver& driver, int priority, uint32_t* word, Writer writer) {
  driver_ = &driver;
  word_ = word;
  marked_ = passed_ = *word;
  CUresult result = driver.cuStreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, priority);
  if (result == CUDA_SUCCESS && writer == Writer::kBeside) {
    result = driver.cuStreamCreateWithPriority(&beside_, CU_STREAM_NON_BLOCKING, priority);
    if (result == CUDA_SUCCESS) result = driver.cuEventCreate(&end_, CU_EVENT_DISABLE_TIMING);
  }
  return driver.check(result, "creating a stream for copies");
}

void Line::close() {
  if (beside_ != nullptr) driver_->cuStreamSynchronize(beside_);  // the word goes next
  if (stream_ != nullptr) driver_->cuStreamDestroy(stream_);
  if (beside_ != nullptr) driver_->cuStreamDestroy(beside_);
  if (end_ != nullptr) driver_->cuEventDestroy(end_);
  stream_ = nullptr;
  beside_ = nullptr;
  end_ = nullptr;
}

uint32_t Line::mark() {
  ++marked_;
  if (!write(marked_)) is_blind_ = true;
  return marked_;
}

bool Line::write(uint32_t number) {
  CUstream writer = stream_;
  if (beside_ != nullptr) {
    writer = beside_;
    if (driver_->cuEventRecord(end_, stream_) != CUDA_SUCCESS ||
        driver_->cuStreamWaitEvent(beside_, end_, 0) != CUDA_SUCCESS)
      return false;
  }
  return driver_->cuStreamWriteValue32(writer, reinterpret_cast<CUdeviceptr>(word_), number, 0) ==
         CUDA_SUCCESS;
}

Line::Progress Line::progress(uint32_t number) {
  // Acquire: the bytes were there before the number.
  const uint32_t seen = std::atomic_ref<uint32_t>(*word_).load(std::memory_order_acquire);
  if (!is_blind_ && reached(seen, passed_)) passed_ = seen;  // kept close behind: numbers wrap
  if (reached(passed_, number)) return Progress::kPassed;
  if (is_dead_) return Progress::kDead;
  return is_blind_ ? inquire(number) : Progress::kPending;
}

Line::Progress Line::inquire(uint32_t number) {
  const CUresult result = driver_->cuStreamQuery(stream_);
  if (result == CUDA_SUCCESS) passed_ = marked_;
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) is_dead_ = true;
  if (reached(passed_, number)) return Progress::kPassed;
  return is_dead_ ? Progress::kDead : Progress::kPending;
}

}  // namespace braid::multipath::copy_engine
