// A GPU that carries other GPUs' bytes, in a context of braid's own: no thread of the program holds
// that context's lock, and the program cannot end it by its own contexts. The relay shares the GPU
// with other contexts. Copy engines work beside their kernels; braid's kernels take turns with them
// by time slices, so a relay whose GPU is busy launches none for a while.
//
// Threads: any. One short lock; no driver call is made under it.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <span>

#include "base/options.h"
#include "base/status.h"
#include "cuda/driver.h"
#include "cuda/kernels/pull.h"
#include "cuda/registered_memory.h"
#include "cuda/shared_memory.h"
#include "multipath/channel.h"
#include "multipath/link_state.h"
#include "multipath/pull_kernels.h"
#include "multipath/relay_health.h"
#include "multipath/share_timer.h"
#include "multipath/transfer.h"

namespace braid::multipath {

/// The number of a relay's channels, if CUDA_DEVICE_MAX_CONNECTIONS lets the context have as many
/// hardware queues: streams that share a queue wait for each other. For copies of one kind the
/// driver has four queues, so four channels carry copies, and only these have a buffer. Kernels
/// need no buffer, and may use any channel: eight held streams took more waits and writes than
/// seven queues hold (docs/measurements, 2026-11-22-2xH200-law; channel_test.cpp checks it for a
/// GPU's kernels).
inline constexpr int kMostChannels = 8;
inline constexpr int kMostCopyChannels = 4;

/// The size of a channel's buffer, unless BRAID_DEVICE_MEMORY asks for less. Larger ones were not
/// measured.
inline constexpr uint64_t kChannelBufferBytes = 32 << 20;

/// A channel holds at most so many operations that have not ended. The driver takes 1020 that have
/// not begun in a held stream, and four times as many in four of them; beyond that, enqueuing
/// blocks (docs/measurements, 2026-11-22-2xH200-law).
inline constexpr uint32_t kMostPendingOps = 1000;

class Relay;

/// A path through a relay: the channels that a transfer has there.
struct RelayPath {
  Relay* relay = nullptr;
  std::array<Channel*, kChannelsOfPath> channels{};
  size_t channel_count = 0;  ///< 0: the relay has no channel free
  uint32_t room_ops = 0;     ///< operations that each of these channels takes more
  uint64_t sequence = 0;     ///< of the transfer, among the relay's
  bool may_time = false;     ///< the share may be timed, since it is alone there (share_timer.h)

  std::span<Channel* const> taken() const { return std::span(channels).first(channel_count); }
};

/// A transfer's needs of a relay.
struct ChannelRequest {
  Mover mover = Mover::kKernel;
  size_t channel_count = 1;    ///< at most
  bool needs_buffers = false;  ///< a staged copy does
  uint32_t ops = 0;            ///< that the transfer will put into each channel
};

/// The result of enqueuing a transfer.
struct Enqueued {
  Verdict verdict = Verdict::kDriverError;
  CUresult error = CUDA_SUCCESS;  ///< kFailed: the driver's error
  uint64_t via = 0;               ///< relays that carry a part of it: bit by ordinal
  /// For each relay, in the order of the transfer's paths: the error that stopped it, if any, and
  /// the bytes that copy engines carry there.
  std::array<CUresult, cuda::kMaxPaths> refused{};
  std::array<uint64_t, cuda::kMaxPaths> relay_bytes{};
};

class Relay {
 public:
  /// Makes the context and everything that transfers need there. Fails if less than 1 GiB of the
  /// GPU's memory would stay free. Takes a tenth of a second or more. What failed half open goes to
  /// `failed`: to end it may wait for streams of the program.
  static Result<std::unique_ptr<Relay>> open(const cuda::Driver& driver, const Options& options,
                                             CUdevice device, int gpu, Notify notify,
                                             std::unique_ptr<Relay>* failed = nullptr);
  /// Ends the context. The driver may wait for other contexts of the process meanwhile.
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  int gpu() const { return gpu_; }  ///< CUDA ordinal
  CUcontext context() const { return context_; }
  const PullKernels& kernels() const { return kernels_; }
  const LinkState& link() const { return link_; }
  uint64_t buffer_bytes() const { return buffer_bytes_; }  ///< of each

  /// This relay's kernels and copies may touch the context's plain memory from now on.
  CUresult reach(CUcontext target) const;

  /// Channels for a transfer of `user`: idle ones, or those of its earlier transfers if they have
  /// room for the operations.
  RelayPath acquire(const StreamKey& user, const ChannelRequest& request);
  void release(const RelayPath& path);

  /// The address of a word that kernels set when they find that the GPU is shared by time slices.
  CUdeviceptr shared_address() const { return reinterpret_cast<CUdeviceptr>(&words()->is_shared); }
  /// True if kernels have found so in the last seconds.
  bool is_shared(uint64_t now_ns);
  RelayHealth& health() { return health_; }
  ShareTimer& timer() { return timer_; }
  /// True if other traffic is on its link: copies through it were recently slower than native ones.
  bool is_congested(Direction direction, uint64_t now_ns);
  RelayCount count(uint64_t now_ns) const { return health_.count(has_buffers(), now_ns); }

  /// True if it has buffers for staged copies; kernels and direct copies need none.
  bool has_buffers() const { return buffers_ != 0; }
  /// Frees the buffers if no transfer is under way here; returns the number of bytes. The context
  /// stays, since its end would wait for streams of the program. Meanwhile transfers go by other
  /// paths.
  uint64_t release_buffers();
  /// Allocates them again, if 1 GiB stays free beside them, a second after they were released at
  /// the earliest.
  Status restore_buffers();

  /// True if no transfer is under way here.
  bool is_idle();

 private:
  struct Words {
    uint32_t is_shared;
    uint32_t unused[15];
    struct {
      uint32_t landed;
      uint32_t unused[15];
    } channels[kMostChannels];
  };

  Relay(const cuda::Driver& driver, CUdevice device, int gpu, Notify notify)
      : driver_(driver), device_(device), gpu_(gpu), timer_(driver), health_(gpu, notify) {}
  Status start(const Options& options);
  Status make_context();
  Status check_room(uint64_t wanted_bytes);
  Status fill(const Options& options);
  Status make_buffers();
  uint64_t buffers_size_bytes() const { return buffer_bytes_ * copy_channel_count_; }
  bool is_idle_locked() const;
  void mark_channels_acquired(bool are_acquired);  // only while the relay is idle
  Status make_channel(Channel& channel, Words& words, size_t index);
  Words* words() const { return static_cast<Words*>(words_->data()); }

  const cuda::Driver& driver_;
  CUdevice device_;
  int gpu_;
  CUcontext context_ = nullptr;
  PullKernels kernels_;
  std::unique_ptr<cuda::SharedMemory> link_memory_;
  LinkState link_;
  uint64_t buffer_bytes_ = 0;
  std::atomic<CUdeviceptr> buffers_{0};
  std::atomic<uint64_t> released_at_ns_{0};
  std::unique_ptr<cuda::RegisteredMemory> words_;
  std::mutex mutex_;
  std::array<Channel, kMostChannels> channels_{};
  size_t channel_count_ = 0;
  size_t copy_channel_count_ = 0;      // the first ones
  std::atomic<uint64_t> sequence_{0};  // transfers that have taken channels
  ShareTimer timer_;
  RelayHealth health_;
};

}  // namespace braid::multipath
