#include "multipath/relay.h"

#include <algorithm>

#include "cuda/scoped_context.h"

namespace braid::multipath {
namespace {

// What a program may still want of a GPU that relays.
constexpr size_t kLeastFreeBytes = size_t{1} << 30;

// Where other contexts' kernels are at work, braid's are left out for so long.
constexpr uint64_t kSharedForNs = 10'000'000'000;

// A context sets memory aside for the stack of every thread that its GPU could run, for printf and
// for a heap. The pull kernels use none of these (docs/measurements, 2026-11-22-2xH200-probes: half
// of what a context costs).
void cut_limits(const cuda::Driver& driver) {
  driver.cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 16);
  driver.cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 1024);
  driver.cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 4096);
}

}  // namespace

Result<std::unique_ptr<Relay>> Relay::open(const cuda::Driver& driver, const Options& options,
                                           CUdevice device, int gpu) {
  std::unique_ptr<Relay> relay(new Relay(driver, device, gpu));
  Status status = relay->make_context();
  if (!status.ok()) return status;
  const cuda::ScopedContext scope(driver, relay->context_);
  status = driver.check(scope.status(), "entering a relay's context");
  if (status.ok()) status = relay->check_room();
  if (status.ok()) status = relay->fill(options);
  if (!status.ok()) return status;
  return relay;
}

// Making a context enters it, behind the back of who has entered another.
Status Relay::make_context() {
  const Status status =
      driver_.check(driver_.create_context(&context_, CU_CTX_SCHED_BLOCKING_SYNC, device_),
                    "opening GPU " + std::to_string(gpu_) + " as a relay");
  if (!status.ok()) context_ = nullptr;
  CUcontext entered = nullptr;
  if (status.ok()) driver_.cuCtxPopCurrent(&entered);
  return status;
}

Status Relay::check_room() {
  cut_limits(driver_);
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  if (driver_.cuMemGetInfo(&free_bytes, &total_bytes) == CUDA_SUCCESS &&
      free_bytes < kLeastFreeBytes)
    return Status::error("less than 1 GiB of GPU " + std::to_string(gpu_) +
                         "'s memory would stay free beside a relay");
  return {};
}

Status Relay::fill(const Options& options) {
  const std::string where = " on GPU " + std::to_string(gpu_);
  auto kernels = load_pull_kernels(driver_, options, device_, gpu_);
  if (!kernels.ok()) return kernels.status();
  kernels_ = kernels.value();
  auto link = cuda::SharedMemory::open(driver_, gpu_, {}, LinkState::kSizeBytes, "a link's state");
  if (!link.ok()) return link.status();
  link_memory_ = std::move(link).value();
  link_ = LinkState(link_memory_->address());
  auto words = cuda::RegisteredMemory::open(driver_, sizeof(Words), "a relay's words");
  if (!words.ok()) return words.status();
  words_ = std::move(words).value();

  channel_count_ = static_cast<size_t>(std::clamp(options.hardware_queues, 1, kMostChannels));
  copy_channel_count_ = std::min<size_t>(channel_count_, kMostCopyChannels);
  const uint64_t most_bytes = options.device_memory_bytes / copy_channel_count_ / 4096 * 4096;
  buffer_bytes_ = options.device_memory_bytes == 0 ? kChannelBufferBytes
                                                   : std::min(kChannelBufferBytes, most_bytes);
  Status status = driver_.check(driver_.cuMemAlloc(&buffers_, buffer_bytes_ * copy_channel_count_),
                                "allocating relay buffers" + where);
  for (size_t i = 0; i < channel_count_ && status.ok(); ++i)
    status = make_channel(channels_[i], *this->words(), i);
  return status;
}

Status Relay::make_channel(Channel& channel, Words& words, size_t index) {
  const std::string where = " on GPU " + std::to_string(gpu_);
  int lowest = 0;
  int highest = 0;
  driver_.cuCtxGetStreamPriorityRange(&lowest, &highest);
  channel.landed = &words.channels[index].landed;
  channel.buffer = index < copy_channel_count_ ? buffers_ + index * buffer_bytes_ : 0;
  Status status = driver_.check(
      driver_.cuStreamCreateWithPriority(&channel.stream, CU_STREAM_NON_BLOCKING, highest),
      "creating a stream" + where);
  if (status.ok())
    status = driver_.check(driver_.cuEventCreate(&channel.end, CU_EVENT_DISABLE_TIMING),
                           "creating an event" + where);
  return status;
}

// Whatever is under way is left alone, and the context with it: the driver would wait for it.
Relay::~Relay() {
  if (context_ == nullptr) return;
  if (words_ != nullptr && !is_idle()) {
    words_->abandon();
    link_memory_->abandon();
    return;
  }
  {
    const cuda::ScopedContext scope(driver_, context_);
    if (scope.status() != CUDA_SUCCESS) return;
    for (const Channel& channel : channels_) {
      if (channel.stream != nullptr) driver_.cuStreamDestroy(channel.stream);
      if (channel.end != nullptr) driver_.cuEventDestroy(channel.end);
    }
    if (buffers_ != 0) driver_.cuMemFree(buffers_);
    if (kernels_.module != nullptr) driver_.cuModuleUnload(kernels_.module);
    words_.reset();
    link_memory_.reset();
  }
  driver_.cuCtxDestroy(context_);
}

CUresult Relay::reach(CUcontext target) const {
  const cuda::ScopedContext scope(driver_, context_);
  if (scope.status() != CUDA_SUCCESS) return scope.status();
  const CUresult enabled = driver_.cuCtxEnablePeerAccess(target, 0);
  return enabled == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED ? CUDA_SUCCESS : enabled;
}

size_t Relay::take(const StreamKey& user, Mover mover, uint32_t ops, std::span<Channel*> into) {
  const std::lock_guard lock(mutex_);
  uint32_t pending = 0;
  for (size_t i = 0; i < channel_count_; ++i) {
    Channel& channel = channels_[i];
    if (!channel.is_taken && channel.is_idle()) channel.pending_ops = 0;
    pending += channel.pending_ops;
  }
  size_t taken = 0;
  const bool by_kernel = mover == Mover::kKernel;
  const size_t eligible = by_kernel ? channel_count_ : copy_channel_count_;
  // Those first that its earlier transfers stand in. Kernels leave those with buffers for last.
  for (const bool may_be_busy : {true, false})
    for (size_t i = 0; i < eligible && taken < into.size(); ++i) {
      Channel& channel = channels_[by_kernel ? eligible - 1 - i : i];
      if (channel.is_taken || channel.is_idle() == may_be_busy) continue;
      if ((may_be_busy && channel.user != user) || pending + ops > kMostPendingOps) continue;
      channel.is_taken = true;
      channel.user = user;
      channel.pending_ops += ops;
      pending += ops;
      into[taken++] = &channel;
    }
  return taken;
}

void Relay::give_back(std::span<Channel* const> taken) {
  const std::lock_guard lock(mutex_);
  for (Channel* channel : taken) channel->is_taken = false;
}

bool Relay::is_shared(uint64_t now_ns) {
  std::atomic_ref<uint32_t> seen(words()->is_shared);
  if (seen.load(std::memory_order_relaxed) != 0) {
    seen.store(0, std::memory_order_relaxed);
    shared_until_ns_ = now_ns + kSharedForNs;
  }
  return now_ns < shared_until_ns_;
}

bool Relay::is_idle() {
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < channel_count_; ++i)
    if (channels_[i].is_taken || (channels_[i].landed != nullptr && !channels_[i].is_idle()))
      return false;
  return true;
}

}  // namespace braid::multipath
