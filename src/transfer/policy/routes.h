// Routes over several hops, for ends that no single transport connects. A search finds them, and a
// pipeline of chunks carries them out. Pure.
// Source: TENT, 3.2.3 (host, GPU, GPU of the peer, host); here any of at most three hops.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace braid::transfer {

/// Who moves the bytes of a hop. In the order of these kinds, one hop of a chain is its main one: a
/// rail before all others, since its backend carries the request.
enum class HopKind : uint8_t {
  kNvLink,  ///< behind a copy to another GPU, or before one from it: braid's copies relay so
  kCopy,    ///< a copy of a GPU, from or to its memory
  kMemory,  ///< the CPU, within the host memory of a process
  kFile,    ///< the file's host reads or writes it
  kMapped,  ///< the CPU, between host memory here and memory of a peer that is mapped here
  kRail,
};

/// One transport that can move bytes between two places. The caller numbers the places.
struct Hop {
  uint32_t from = 0;
  uint32_t to = 0;
  double gbps = 1;
  double latency_us = 0;
  HopKind kind = HopKind::kRail;
  uint32_t transport = 0;  ///< of rails: the caller's number
};

struct Route {
  std::vector<size_t> hops;  ///< indices, in order
  double finish_us = 0;      ///< predicted, from an idle start
};

inline constexpr size_t kHopsMax = 3;
/// Bytes follow each other over the hops of a route in chunks of this size.
inline constexpr uint64_t kChunkBytes = 512 << 10;

/// When the last byte arrives: chunks follow each other through the hops, and the slowest hop sets
/// the pace.
double finish_us(std::span<const Hop> hops, std::span<const size_t> route, uint64_t size_bytes,
                 uint64_t chunk_bytes);

/// All routes of at most `kHopsMax` hops that visit no place twice, the soonest first; if two are
/// equally soon, the shorter first.
std::vector<Route> find_routes(std::span<const Hop> hops, uint32_t from, uint32_t to,
                               uint64_t size_bytes, uint64_t chunk_bytes);

/// Chunks on their way over the hops of one route. Between two hops there is one buffer for each
/// credit: a chunk begins a hop only when it has a buffer at the hop's end. A chunk takes credits
/// for one hop at a time, in the order of the hops, and needs none for the last hop. So a chunk
/// waits only for chunks ahead of it.
class Pipeline {
 public:
  /// `buffers[i]`: the number of buffers behind hop i, at least 1. There is one entry fewer than
  /// hops.
  Pipeline(uint64_t size_bytes, uint64_t chunk_bytes, std::vector<uint32_t> buffers);

  struct Step {
    size_t hop = 0;
    uint64_t chunk = 0;
    uint64_t offset = 0;
    uint64_t size_bytes = 0;
    uint32_t from_buffer = 0;  ///< among the buffers before the hop; unused for the first hop
    uint32_t to_buffer = 0;    ///< among the buffers behind the hop; unused for the last hop
  };
  /// The next step that can begin now, the farthest ahead first; none until another step is done.
  std::optional<Step> next();
  void done(const Step& step);
  /// Begins nothing more.
  void stop() { is_stopped_ = true; }
  bool is_done() const { return delivered_ == chunks_; }
  size_t under_way() const { return under_way_; }

 private:
  struct Waiting {  // a chunk before a hop, in a buffer before the hop
    uint64_t chunk;
    uint32_t buffer;
  };
  Step step(size_t hop, const Waiting& from) const;

  uint64_t size_bytes_, chunk_bytes_, chunks_;
  uint64_t begun_ = 0, delivered_ = 0;
  size_t under_way_ = 0;
  bool is_stopped_ = false;
  std::vector<std::vector<uint32_t>> free_;    // buffers, by the hop before them
  std::vector<std::vector<Waiting>> waiting_;  // by hop; the first is empty
};

}  // namespace braid::transfer
