#include "multipath/copy_engine/line.h"

#include <atomic>

namespace braid::multipath::copy_engine {
namespace {

bool reached(uint32_t seen, uint32_t number) { return static_cast<int32_t>(seen - number) >= 0; }

}  // namespace

Status Line::open(const cuda::Driver& driver, int priority, uint32_t* word) {
  driver_ = &driver;
  word_ = word;
  return driver.check(driver.cuStreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, priority),
                      "creating a stream for copies");
}

void Line::close() {
  if (stream_ != nullptr) driver_->cuStreamDestroy(stream_);
  stream_ = nullptr;
}

uint32_t Line::mark() {
  ++marked_;
  if (driver_->cuStreamWriteValue32(stream_, reinterpret_cast<CUdeviceptr>(word_), marked_, 0) !=
      CUDA_SUCCESS)
    is_blind_ = true;
  return marked_;
}

Line::Progress Line::progress(uint32_t number) {
  // Acquire: the bytes were there before the number.
  const uint32_t seen = std::atomic_ref<uint32_t>(*word_).load(std::memory_order_acquire);
  if (reached(seen, number) || reached(passed_, number)) return Progress::kPassed;
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
