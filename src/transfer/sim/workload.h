// Threads that submit a batch, wait for its end, and submit the next; and measurements of them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "transfer/sim/process.h"

namespace braid::transfer::sim {

struct ThreadSpec {
  Process* process = nullptr;
  Batch batch;               ///< the same each time
  uint64_t begin_ns = 0;     ///< of the first
  uint64_t pause_ns = 0;     ///< between two
  uint64_t end_ns = kNever;  ///< no more begins then
  uint32_t batches_max = 0;  ///< 0: no limit
};

/// Measurements between two times.
struct Measured {
  double gbps = 0;              ///< delivered, of all threads
  std::vector<double> took_us;  ///< of each batch that ended then, sorted
  uint64_t failed = 0;          ///< requests
  double percentile_us(double part) const;
  double p50_us() const { return percentile_us(0.50); }
  double p99_us() const { return percentile_us(0.99); }
};

/// Bytes by time.
class Timeline {
 public:
  explicit Timeline(uint64_t bin_ns) : bin_ns_(bin_ns) {}
  void add(uint64_t bytes, uint64_t now_ns);
  uint64_t bin_ns() const { return bin_ns_; }
  size_t bins() const { return bytes_.size(); }
  double gbps(size_t bin) const;
  /// The rate over whole bins: from the bin of `begin_ns` up to, but without, that of `end_ns`.
  double gbps(uint64_t begin_ns, uint64_t end_ns) const;

 private:
  uint64_t bin_ns_;
  std::vector<uint64_t> bytes_;
};

class Threads {
 public:
  explicit Threads(Network& network) : network_(network) {}
  /// Adds a thread, which begins when the network's time reaches `begin_ns`.
  void add(const ThreadSpec& spec);
  bool are_all_done() const { return running_ == 0; }

  /// The measurements of `count` threads from `first` on.
  Measured between(uint64_t begin_ns, uint64_t end_ns, size_t first, size_t count) const;
  Measured between(uint64_t begin_ns, uint64_t end_ns) const {
    return between(begin_ns, end_ns, 0, threads_.size());
  }

 private:
  struct Ended {
    uint64_t begun_ns, ended_ns;
    uint32_t failed;
  };
  struct Thread {
    ThreadSpec spec;
    uint64_t bytes = 0;  // of a batch
    uint32_t begun = 0;
    std::vector<Ended> ended;
  };
  void begin(size_t thread);

  Network& network_;
  std::vector<std::unique_ptr<Thread>> threads_;
  size_t running_ = 0;
};

}  // namespace braid::transfer::sim
