// Ways over several hops, where no transport goes from end to end: found by search, and carried out
// as a pipeline of chunks. Pure.
// Source: TENT, 3.2.3 (host, GPU, GPU of the peer, host); here any of at most three hops.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace braid::transfer {

/// What one transport can do: move bytes between two places. Places are numbers of the caller's.
struct Hop {
  uint32_t from = 0;
  uint32_t to = 0;
  double gbps = 1;
  double latency_us = 0;
  uint32_t transport = 0;  ///< the caller's
};

struct Route {
  std::vector<size_t> hops;  ///< indices, in order
  double finish_us = 0;      ///< predicted, from an idle start
};

inline constexpr size_t kHopsMax = 3;

/// When the last byte is there: chunks follow each other through the hops, and the slowest sets the
/// pace.
double finish_us(std::span<const Hop> hops, std::span<const size_t> route, uint64_t size_bytes,
                 uint64_t chunk_bytes);

/// All routes of at most `kHopsMax` hops that meet no place twice, the soonest first; of equal
/// ones, the shorter first.
std::vector<Route> find_routes(std::span<const Hop> hops, uint32_t from, uint32_t to,
                               uint64_t size_bytes, uint64_t chunk_bytes);

/// Chunks on their way over the hops of one route. Between two hops lie as many buffers as there
/// are credits: a chunk begins a hop only when it has a buffer at its end. Credits are taken for
/// one hop at a time, in the order of the hops, and the last hop needs none: so what is behind
/// waits for what is ahead, never the other way round.
class Pipeline {
 public:
  /// `buffers[i]`: behind hop i; one fewer than hops, each at least 1.
  Pipeline(uint64_t size_bytes, uint64_t chunk_bytes, std::vector<uint32_t> buffers);

  struct Step {
    size_t hop = 0;
    uint64_t chunk = 0;
    uint64_t offset = 0;
    uint64_t size_bytes = 0;
    uint32_t from_buffer = 0;  ///< of those before the hop; not for the first
    uint32_t to_buffer = 0;    ///< of those behind it; not for the last
  };
  /// What can begin now, the farthest ahead first; nothing until something is done.
  std::optional<Step> next();
  void done(const Step& step);
  /// Begins nothing more.
  void stop() { is_stopped_ = true; }
  bool is_done() const { return delivered_ == chunks_; }
  size_t under_way() const { return under_way_; }

 private:
  struct Waiting {  // before a hop, in a buffer of those before it
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
