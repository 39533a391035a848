#include "transfer/sim/workload.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace braid::transfer::sim {

double Measured::percentile_us(double part) const {
  if (took_us.empty()) return 0;
  const double rank = std::ceil(part * static_cast<double>(took_us.size()));
  return took_us[std::min(took_us.size() - 1, static_cast<size_t>(std::max(1.0, rank)) - 1)];
}

void Timeline::add(uint64_t bytes, uint64_t now_ns) {
  const size_t bin = now_ns / bin_ns_;
  if (bin >= bytes_.size()) bytes_.resize(bin + 1);
  bytes_[bin] += bytes;
}

double Timeline::gbps(size_t bin) const {
  return bin < bytes_.size() ? static_cast<double>(bytes_[bin]) / static_cast<double>(bin_ns_) : 0;
}

double Timeline::gbps(uint64_t begin_ns, uint64_t end_ns) const {
  const size_t first = begin_ns / bin_ns_, last = end_ns / bin_ns_;
  double sum = 0;
  for (size_t bin = first; bin < last; ++bin) sum += gbps(bin);
  return last > first ? sum / static_cast<double>(last - first) : 0;
}

void Threads::add(const ThreadSpec& spec) {
  threads_.push_back(std::make_unique<Thread>());
  Thread& thread = *threads_.back();
  thread.spec = spec;
  const auto& sizes = spec.batch.sizes_bytes;
  thread.bytes = std::accumulate(sizes.begin(), sizes.end(), uint64_t{0});
  ++running_;
  const size_t index = threads_.size() - 1;
  network_.at_ns(spec.begin_ns, [this, index] { begin(index); });
}

void Threads::begin(size_t index) {
  Thread& thread = *threads_[index];
  const uint64_t now_ns = network_.now_ns();
  const bool is_over = now_ns >= thread.spec.end_ns ||
                       (thread.spec.batches_max > 0 && thread.begun == thread.spec.batches_max);
  if (is_over) {
    --running_;
    return;
  }
  ++thread.begun;
  thread.spec.process->submit(thread.spec.batch, [this, index, now_ns](const BatchEnded& ended) {
    Thread& at = *threads_[index];
    at.ended.push_back({now_ns, network_.now_ns(), ended.failed});
    network_.at_ns(network_.now_ns() + at.spec.pause_ns, [this, index] { begin(index); });
  });
}

Measured Threads::between(uint64_t begin_ns, uint64_t end_ns, size_t first, size_t count) const {
  Measured measured;
  for (size_t i = first; i < first + count; ++i) {
    const Thread& thread = *threads_[i];
    double batches = 0;
    for (const Ended& ended : thread.ended) {
      // If a batch was under way at an edge, only its part inside counts.
      const uint64_t from = std::max(begin_ns, ended.begun_ns);
      const uint64_t to = std::min(end_ns, ended.ended_ns);
      if (to <= from) continue;
      batches +=
          static_cast<double>(to - from) / static_cast<double>(ended.ended_ns - ended.begun_ns);
      if (ended.ended_ns > end_ns || ended.begun_ns < begin_ns) continue;
      measured.took_us.push_back(static_cast<double>(ended.ended_ns - ended.begun_ns) / 1000);
      measured.failed += ended.failed;
    }
    measured.gbps +=
        batches * static_cast<double>(thread.bytes) / static_cast<double>(end_ns - begin_ns);
  }
  std::sort(measured.took_us.begin(), measured.took_us.end());
  return measured;
}

}  // namespace braid::transfer::sim
