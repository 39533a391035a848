// One context that braid launches in: the primary context of a GPU (which may be a target and a
// relay), or a context that the program made (a target only). Owns what every launch there needs.
#pragma once

#include <array>
#include <memory>

#include "base/options.h"
#include "base/status.h"
#include "cuda/driver.h"
#include "cuda/kernels/gate.h"
#include "multipath/transfer.h"

namespace braid::multipath {

/// How one of the two pull kernels is launched.
struct KernelChoice {
  CUfunction function = nullptr;
  uint32_t blocks = 0;        ///< a path spends these on a contiguous copy
  uint32_t batch_blocks = 0;  ///< and these on a batch
  uint32_t threads = 0;
  uint32_t shared_bytes = 0;
};

class Endpoint {
 public:
  /// Loads the kernels into `context`. With `retained`, releases the device's primary context when
  /// destroyed. Allocates; may block.
  static Result<std::unique_ptr<Endpoint>> open(const cuda::Driver& driver, const Options& options,
                                                CUdevice device, int gpu, CUcontext context,
                                                bool retained);
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  int gpu() const { return gpu_; }  ///< CUDA ordinal
  CUdevice device() const { return device_; }
  CUcontext context() const { return context_; }
  bool is_primary() const { return retained_; }
  int stream_priority() const { return stream_priority_; }

  /// The streams that this GPU relays on, shared by all targets: `lane` modulo their number. Few,
  /// since the driver maps a context's streams onto few hardware queues. A target whose relay
  /// stream is held up by another's still completes over its direct path.
  static constexpr int kRelayStreams = 4;
  CUstream relay_stream(int lane) const { return relay_streams_[lane % kRelayStreams]; }

  /// Address of the link's board (pull.h), by direction.
  CUdeviceptr board(Direction direction) const;
  /// Address of the link's pace (pull.h).
  CUdeviceptr pace() const;

  /// The bulk kernel where the GPU has it and the ends are aligned alike, else the plain one.
  const KernelChoice& kernel_for(bool aligned_alike) const {
    return aligned_alike && bulk_.function != nullptr ? bulk_ : vector_;
  }

  // By kernels in `stream` (cuda/kernels/gate.h); the context must be current.
  /// Holds the stream until the word, in host memory, is `generation` or later.
  CUresult hold(CUstream stream, CUdeviceptr word, uint32_t generation) const;
  /// Ends the context with a sticky error, and with it every other of the process, as drivers do.
  CUresult fail(CUstream stream) const;
  /// The context has a sticky error. Asks the driver; of a relay only.
  bool has_failed() const;

  /// How a stream of this context waits for a count in its GPU's memory that other GPUs write.
  unsigned wait_flags() const { return wait_flags_; }

  /// Gives back everything in the context, and the hold on it, now rather than in the destructor.
  /// No kernel may be under way. Abandoned afterwards.
  void close();

  /// The context is gone, or about to be: touch nothing there any more.
  void abandon() { abandoned_ = true; }
  bool is_abandoned() const { return abandoned_; }

 private:
  Endpoint(const cuda::Driver& driver, CUdevice device, int gpu, CUcontext context, bool retained)
      : driver_(driver), device_(device), gpu_(gpu), context_(context), retained_(retained) {}
  Status load(const Options& options);
  Status load_pull_kernels(const Options& options);
  Status load_gate_kernels();
  Status create_relay_streams();
  CUresult launch_gate(CUfunction kernel, CUstream stream, cuda::GateArgs args) const;

  const cuda::Driver& driver_;
  CUdevice device_;
  int gpu_;
  CUcontext context_;
  bool retained_;
  bool abandoned_ = false;
  int stream_priority_ = 0;
  unsigned wait_flags_ = CU_STREAM_WAIT_VALUE_GEQ;
  CUmodule pull_module_ = nullptr;
  CUmodule gate_module_ = nullptr;
  KernelChoice vector_;
  KernelChoice bulk_;
  CUfunction gate_kernel_ = nullptr;
  CUfunction fail_kernel_ = nullptr;
  CUdeviceptr boards_ = 0;
  std::array<CUstream, kRelayStreams> relay_streams_{};
};

}  // namespace braid::multipath
