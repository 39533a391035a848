// What the copy-engine mover owns in one context: streams, relay buffers, the words by which the
// CPU and the context's streams talk, and the gate's kernels. Allocated when the context is
// prepared, never on a copy's path.
//
// Streams: a line for the PCIe link in each direction, with a stream beside it that writes its
// numbers (line.h); and one for the NVLink hops of both directions, which are five times shorter,
// and writes them itself. A link's slices go one after the other: on two streams in turn the copy
// engine carries two at once, they land in pairs, and the link then has nothing until the thread
// comes by (1 GiB on 2xH200: 92 and 91 GB/s; now 104 and 105). All have the highest priority.
// Assumed, as for lanes (multipath/lane.h): the driver does not put streams of the highest priority
// on the hardware queue of a program's stream that is blocked while it has others.
#pragma once

#include <array>
#include <memory>

#include "base/options.h"
#include "base/status.h"
#include "cuda/driver.h"
#include "cuda/registered_memory.h"
#include "multipath/copy_engine/dispatch.h"
#include "multipath/copy_engine/line.h"
#include "multipath/endpoint.h"

namespace braid::multipath::copy_engine {

/// Transfers in flight at once, of all targets; the next copy is native.
inline constexpr uint32_t kMaxTasks = 128;

/// Relay buffers of one GPU: three slices under way on the link, and two on their way to the
/// target or from it. 20 MB, as the paper's (MMA section 3.4.3), but shared by both directions.
inline constexpr int kRelayBuffers = 5;

/// Two for each direction of the link (line.h), and one for hops over NVLink.
inline constexpr int kStreamsPerContext = 5;

class Station {
 public:
  /// At most `limit_bytes` of device memory (0: no limit); without any, it does not relay.
  static Result<std::unique_ptr<Station>> open(const cuda::Driver& driver, Endpoint& endpoint,
                                               uint64_t limit_bytes);
  ~Station();
  Station(const Station&) = delete;
  Station& operator=(const Station&) = delete;

  Endpoint& endpoint() const { return endpoint_; }
  int gpu() const { return endpoint_.gpu(); }
  CUcontext context() const { return endpoint_.context(); }
  bool can_relay() const { return buffer_count_ > 0; }
  uint64_t buffer_bytes() const { return buffer_count_ * kRelayBufferBytes; }

  // ---- The program's stream, on the caller's thread ----

  /// In the stream's order: tell the CPU that it has come so far.
  CUresult announce_start(CUstream stream, uint32_t task, uint32_t generation) const;
  /// In the stream's order: wait until the gate is opened. Success, or nothing is enqueued.
  CUresult close_gate(CUstream stream, uint32_t task, uint32_t generation) const;

  // ---- The scheduler's thread ----

  bool has_started(uint32_t task, uint32_t generation) const;
  void open_gate(uint32_t task, uint32_t generation) const;
  /// As Endpoint::fail, at once. The context must be current.
  void fail_context() const;
  /// The context has a sticky error. Asks the driver.
  bool has_failed() const;

  Line& link(Direction direction) { return links_[static_cast<size_t>(direction)]; }
  Line& hop() { return hop_; }

  int take_buffer(Direction direction);  ///< -1: none is free
  void give_back_buffer(Direction direction, int buffer);
  /// Neither direction starves the other: while both are busy, each leaves two.
  bool has_buffer(Direction direction, bool other_is_busy) const;
  CUdeviceptr buffer(int number) const { return buffers_ + number * kRelayBufferBytes; }

  /// The context is gone, or cannot be waited for: touch nothing there any more.
  void abandon() { is_abandoned_ = true; }

 private:
  Station(const cuda::Driver& driver, Endpoint& endpoint) : driver_(driver), endpoint_(endpoint) {}
  Status allocate(uint64_t limit_bytes);
  Status open_words();
  Status open_lines();
  Status open_buffers(uint64_t limit_bytes);
  Status warm_up() const;
  uint32_t* word(size_t number) const;
  uint32_t* start_word(uint32_t task) const { return word(size_t{2} * task); }
  uint32_t* gate_word(uint32_t task) const { return word(size_t{2} * task + 1); }

  const cuda::Driver& driver_;
  Endpoint& endpoint_;
  bool is_abandoned_ = false;
  std::unique_ptr<cuda::RegisteredMemory> words_;
  std::array<Line, 2> links_;  // by direction
  Line hop_;
  CUdeviceptr buffers_ = 0;
  int buffer_count_ = 0;
  uint32_t free_buffers_ = 0;  // bit by number
  std::array<int, 2> held_{};  // by direction
};

}  // namespace braid::multipath::copy_engine
