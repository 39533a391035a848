#include "multipath/relay.h"

#include <algorithm>

#include "base/try.h"
#include "cuda/scoped_context.h"

namespace braid::multipath {
namespace {

// What a program may still want of a GPU that relays.
constexpr size_t kLeastFreeBytes = size_t{1} << 30;

// What has been given back belongs to the program's next call.
constexpr uint64_t kReleasedForNs = 1'000'000'000;

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
                                           CUdevice device, int gpu, Notify notify,
                                           std::unique_ptr<Relay>* failed) {
  std::unique_ptr<Relay> relay(new Relay(driver, device, gpu, notify));
  Status started = relay->start(options);
  if (started.ok()) return relay;
  if (failed != nullptr) *failed = std::move(relay);
  return started;
}

Status Relay::start(const Options& options) {
  BRAID_TRY(make_context());
  const cuda::ScopedContext scope(driver_, context_);
  BRAID_TRY(driver_.check(scope.status(), "entering a relay's context"));
  cut_limits(driver_);
  BRAID_TRY(check_room(0));
  return fill(options);
}

// Making a context enters it, behind the back of who has entered another.
Status Relay::make_context() {
  CUcontext made = nullptr;
  BRAID_TRY(driver_.check(driver_.create_context(&made, CU_CTX_SCHED_BLOCKING_SYNC, device_),
                          "opening GPU " + std::to_string(gpu_) + " as a relay"));
  context_ = made;
  driver_.cuCtxPopCurrent(&made);
  return {};
}

Status Relay::check_room(uint64_t wanted_bytes) {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  if (driver_.cuMemGetInfo(&free_bytes, &total_bytes) == CUDA_SUCCESS &&
      free_bytes < kLeastFreeBytes + wanted_bytes)
    return Status::error("less than 1 GiB of GPU " + std::to_string(gpu_) +
                         "'s memory would stay free beside a relay");
  return {};
}

Status Relay::fill(const Options& options) {
  BRAID_LET(kernels, load_pull_kernels(driver_, options, device_, gpu_));
  kernels_ = kernels;
  BRAID_LET(link,
            cuda::SharedMemory::open(driver_, gpu_, {}, LinkState::kSizeBytes, "a link's state"));
  link_memory_ = std::move(link);
  link_ = LinkState(link_memory_->address());
  BRAID_LET(words, cuda::RegisteredMemory::open(driver_, sizeof(Words), "a relay's words"));
  words_ = std::move(words);

  channel_count_ = static_cast<size_t>(std::clamp(options.hardware_queues, 1, kMostChannels));
  copy_channel_count_ = std::min<size_t>(channel_count_, kMostCopyChannels);
  const uint64_t most_bytes = options.device_memory_bytes / copy_channel_count_ / 4096 * 4096;
  buffer_bytes_ = std::min(kChannelBufferBytes, most_bytes);
  BRAID_TRY(make_buffers());
  for (size_t i = 0; i < channel_count_; ++i)
    BRAID_TRY(make_channel(channels_[i], *this->words(), i));
  BRAID_TRY(timer_.open());
  return warm_up(driver_, kernels_, channels_[0].stream);
}

// Of channels that nobody has taken.
Status Relay::make_buffers() {
  CUdeviceptr buffers = 0;
  BRAID_TRY(driver_.check(driver_.cuMemAlloc(&buffers, buffers_size_bytes()),
                          "allocating relay buffers on GPU " + std::to_string(gpu_)));
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < copy_channel_count_; ++i)
    channels_[i].buffer = buffers + i * buffer_bytes_;
  buffers_ = buffers;
  return {};
}

Status Relay::make_channel(Channel& channel, Words& words, size_t index) {
  const std::string where = " on GPU " + std::to_string(gpu_);
  int lowest = 0;
  int highest = 0;
  driver_.cuCtxGetStreamPriorityRange(&lowest, &highest);
  channel.gpu = gpu_;
  channel.landed = &words.channels[index].landed;
  BRAID_TRY(driver_.check(
      driver_.cuStreamCreateWithPriority(&channel.stream, CU_STREAM_NON_BLOCKING, highest),
      "creating a stream" + where));
  return driver_.check(driver_.cuEventCreate(&channel.end, CU_EVENT_DISABLE_TIMING),
                       "creating an event" + where);
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
    timer_.close();
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

RelayPath Relay::acquire(const StreamKey& user, const ChannelRequest& request) {
  const std::lock_guard lock(mutex_);
  RelayPath path{.relay = this, .may_time = is_idle_locked()};
  if (request.needs_buffers && !has_buffers()) return path;
  const bool by_kernel = request.mover == Mover::kKernel;
  const size_t eligible = by_kernel ? channel_count_ : copy_channel_count_;
  const size_t most = std::min(request.channel_count, path.channels.size());
  path.room_ops = kMostPendingOps;
  // Those first that its earlier transfers stand in. Kernels leave those with buffers for last.
  for (const bool may_be_busy : {true, false})
    for (size_t i = 0; i < eligible && path.channel_count < most; ++i) {
      Channel& channel = channels_[by_kernel ? eligible - 1 - i : i];
      if (channel.is_acquired || channel.is_idle() == may_be_busy) continue;
      if (may_be_busy && channel.user != user) continue;
      const uint32_t pending = channel.pending_ops();
      if (pending > kMostPendingOps || request.ops > kMostPendingOps - pending) continue;
      path.room_ops = std::min(path.room_ops, kMostPendingOps - pending);
      channel.is_acquired = true;
      channel.user = user;
      path.channels[path.channel_count++] = &channel;
    }
  if (path.channel_count != 0) path.sequence = ++sequence_;
  return path;
}

void Relay::release(const RelayPath& path) {
  const std::lock_guard lock(mutex_);
  for (Channel* channel : path.taken()) channel->is_acquired = false;
}

bool Relay::is_shared(uint64_t now_ns) {
  std::atomic_ref<uint32_t> seen(words()->is_shared);
  if (seen.load(std::memory_order_relaxed) != 0) {
    seen.store(0, std::memory_order_relaxed);
    health_.found_shared(now_ns);
  }
  return health_.is_shared(now_ns);
}

bool Relay::is_congested(Direction direction, uint64_t now_ns) {
  const auto reading = timer_.read(sequence_);
  if (reading && reading->is_late) health_.found_congested(reading->direction, now_ns);
  return health_.is_congested(direction, now_ns);
}

// To free memory, the driver waits for all that is under way in the context, and holds its lock
// meanwhile. So this takes every channel: no transfer begins here until the memory is free.
uint64_t Relay::release_buffers() {
  CUdeviceptr buffers = 0;
  {
    const std::lock_guard lock(mutex_);
    if (!is_idle_locked()) return 0;
    released_at_ns_ = driver_.clock->now_ns();  // before anybody sees that they are gone
    buffers = buffers_.exchange(0);
    if (buffers == 0) return 0;
    mark_channels_acquired(true);
  }
  CUresult freed;
  {
    const cuda::ScopedContext scope(driver_, context_);
    freed = scope.status() == CUDA_SUCCESS ? driver_.cuMemFree(buffers) : scope.status();
  }
  const std::lock_guard lock(mutex_);
  mark_channels_acquired(false);
  return freed == CUDA_SUCCESS ? buffers_size_bytes() : 0;
}

void Relay::mark_channels_acquired(bool are_acquired) {
  for (size_t i = 0; i < channel_count_; ++i) channels_[i].is_acquired = are_acquired;
}

// Nobody uses the buffers that are not there.
Status Relay::restore_buffers() {
  if (has_buffers()) return {};
  if (driver_.clock->now_ns() < released_at_ns_ + kReleasedForNs)
    return Status::error("the program has just got the memory of a relay's buffers");
  const cuda::ScopedContext scope(driver_, context_);
  BRAID_TRY(driver_.check(scope.status(), "entering a relay's context"));
  BRAID_TRY(check_room(buffers_size_bytes()));
  return make_buffers();
}

bool Relay::is_idle() {
  const std::lock_guard lock(mutex_);
  return is_idle_locked();
}

bool Relay::is_idle_locked() const {
  for (size_t i = 0; i < channel_count_; ++i)
    if (channels_[i].is_acquired || (channels_[i].landed != nullptr && !channels_[i].is_idle()))
      return false;
  return true;
}

}  // namespace braid::multipath
