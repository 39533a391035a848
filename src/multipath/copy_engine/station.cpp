#include "multipath/copy_engine/station.h"

#include <algorithm>
#include <atomic>
#include <bit>

#include "cuda/scoped_context.h"

namespace braid::multipath::copy_engine {
namespace {

// Apart in memory: the CPU polls some of these words while a GPU writes others.
constexpr size_t kWordStride = 64;
constexpr size_t kLineWords = 3;
constexpr size_t kWords = 2 * size_t{kMaxTasks} + kLineWords;

// Buffers that a direction leaves to the other while both are busy.
constexpr int kLeftToOther = 2;

CUdeviceptr word_address(const uint32_t* word) { return reinterpret_cast<CUdeviceptr>(word); }

}  // namespace

Result<std::unique_ptr<Station>> Station::open(const cuda::Driver& driver, Endpoint& endpoint,
                                               uint64_t limit_bytes) {
  std::unique_ptr<Station> station(new Station(driver, endpoint));
  cuda::ScopedContext scope(driver, endpoint.context());
  Status status = driver.check(scope.status(), "allocating what copies need");
  if (status.ok()) status = station->allocate(limit_bytes);
  if (!status.ok())
    return Status::error("GPU " + std::to_string(endpoint.gpu()) + ": " + status.message());
  return station;
}

Status Station::allocate(uint64_t limit_bytes) {
  Status status = open_words();
  if (status.ok()) status = open_lines();
  if (status.ok() && endpoint_.is_primary()) status = open_buffers(limit_bytes);
  return status.ok() ? warm_up() : status;
}

// The gate's kernel, once, with an open gate: no later copy loads code.
Status Station::warm_up() const {
  return driver_.check(endpoint_.hold(hop_.stream(), word_address(gate_word(0)), 0),
                       "running the gate's kernel");
}

// Registered in this context, with which they end.
Status Station::open_words() {
  auto words = cuda::RegisteredMemory::open(driver_, kWords * kWordStride, "the copies' words");
  if (words.ok()) words_ = std::move(words).value();
  return words.status();
}

Status Station::open_lines() {
  size_t number = 2 * size_t{kMaxTasks};
  const int priority = endpoint_.stream_priority();
  for (Line& line : links_) {
    const Status status = line.open(driver_, priority, word(number++), Line::Writer::kBeside);
    if (!status.ok()) return status;
  }
  return hop_.open(driver_, priority, word(number), Line::Writer::kItself);
}

static_assert(kRelayBufferBytes <= kLeastDeviceMemoryBytes);

Status Station::open_buffers(uint64_t limit_bytes) {
  buffer_count_ = kRelayBuffers;
  while (limit_bytes != 0 && buffer_count_ > 0 && buffer_bytes() > limit_bytes) --buffer_count_;
  if (buffer_count_ == 0) return {};
  free_buffers_ = (1u << buffer_count_) - 1;
  return driver_.check(driver_.cuMemAlloc(&buffers_, buffer_bytes()), "allocating relay buffers");
}

Station::~Station() {
  if (is_abandoned_ || endpoint_.is_abandoned()) {
    if (words_ != nullptr) words_->abandon();
    return;
  }
  cuda::ScopedContext scope(driver_, context());
  for (Line& line : links_) line.close();
  hop_.close();
  if (buffers_ != 0) driver_.cuMemFree(buffers_);
  words_.reset();
}

uint32_t* Station::word(size_t number) const {
  return reinterpret_cast<uint32_t*>(static_cast<char*>(words_->data()) + number * kWordStride);
}

CUresult Station::announce_start(CUstream stream, uint32_t task, uint32_t generation) const {
  return driver_.cuStreamWriteValue32(stream, word_address(start_word(task)), generation, 0);
}

CUresult Station::close_gate(CUstream stream, uint32_t task, uint32_t generation) const {
  const CUdeviceptr word = word_address(gate_word(task));
  if (driver_.cuStreamWaitValue32(stream, word, generation, endpoint_.wait_flags()) == CUDA_SUCCESS)
    return CUDA_SUCCESS;
  return endpoint_.hold(stream, word, generation);
}

bool Station::has_started(uint32_t task, uint32_t generation) const {
  return std::atomic_ref<uint32_t>(*start_word(task)).load(std::memory_order_acquire) == generation;
}

void Station::open_gate(uint32_t task, uint32_t generation) const {
  std::atomic_ref<uint32_t>(*gate_word(task)).store(generation, std::memory_order_release);
}

bool Station::has_failed() const {
  const CUresult result = driver_.cuStreamQuery(hop_.stream());
  return result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY;
}

void Station::fail_context() const {
  (void)endpoint_.fail(hop_.stream());  // refused: it has failed already
}

bool Station::has_buffer(Direction direction, bool other_is_busy) const {
  const int most = buffer_count_ - (other_is_busy ? kLeftToOther : 0);
  return free_buffers_ != 0 && held_[static_cast<size_t>(direction)] < std::max(most, 1);
}

int Station::take_buffer(Direction direction) {
  if (free_buffers_ == 0) return -1;
  const int number = std::countr_zero(free_buffers_);
  free_buffers_ &= free_buffers_ - 1;
  ++held_[static_cast<size_t>(direction)];
  return number;
}

void Station::give_back_buffer(Direction direction, int buffer) {
  free_buffers_ |= 1u << buffer;
  --held_[static_cast<size_t>(direction)];
}

}  // namespace braid::multipath::copy_engine
