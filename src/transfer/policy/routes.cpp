#include "transfer/policy/routes.h"

#include <algorithm>

namespace braid::transfer {
namespace {

double bytes_a_us(const Hop& hop) { return hop.gbps * 1e3; }

struct Search {
  std::span<const Hop> hops;
  uint32_t to;
  uint64_t size_bytes, chunk_bytes;
  std::vector<size_t> way;
  std::vector<uint32_t> met;
  std::vector<Route> found;

  void go_on(uint32_t at) {
    if (at == to && !way.empty()) {
      found.push_back({way, finish_us(hops, way, size_bytes, chunk_bytes)});
      return;
    }
    if (way.size() == kHopsMax) return;
    met.push_back(at);
    for (size_t i = 0; i < hops.size(); ++i) {
      if (hops[i].from != at || std::find(met.begin(), met.end(), hops[i].to) != met.end())
        continue;
      way.push_back(i);
      go_on(hops[i].to);
      way.pop_back();
    }
    met.pop_back();
  }
};

}  // namespace

double finish_us(std::span<const Hop> hops, std::span<const size_t> route, uint64_t size_bytes,
                 uint64_t chunk_bytes) {
  const double size = static_cast<double>(size_bytes);
  const double chunk = static_cast<double>(std::min(size_bytes, chunk_bytes));
  double us = 0, slowest = 0;
  for (const size_t i : route) {
    us += hops[i].latency_us + chunk / bytes_a_us(hops[i]);
    slowest = std::max(slowest, 1 / bytes_a_us(hops[i]));
  }
  return us + (size - chunk) * slowest;
}

std::vector<Route> find_routes(std::span<const Hop> hops, uint32_t from, uint32_t to,
                               uint64_t size_bytes, uint64_t chunk_bytes) {
  Search search{hops, to, size_bytes, chunk_bytes, {}, {}, {}};
  search.go_on(from);
  std::stable_sort(search.found.begin(), search.found.end(), [](const Route& a, const Route& b) {
    return a.finish_us != b.finish_us ? a.finish_us < b.finish_us : a.hops.size() < b.hops.size();
  });
  return search.found;
}

Pipeline::Pipeline(uint64_t size_bytes, uint64_t chunk_bytes, std::vector<uint32_t> buffers)
    : size_bytes_(size_bytes),
      chunk_bytes_(chunk_bytes),
      chunks_(size_bytes / chunk_bytes + (size_bytes % chunk_bytes == 0 ? 0 : 1)),
      waiting_(buffers.size() + 1) {
  for (const uint32_t count : buffers) {
    free_.emplace_back();
    for (uint32_t i = count; i-- > 0;) free_.back().push_back(i);
  }
}

Pipeline::Step Pipeline::step(size_t hop, const Waiting& from) const {
  const uint64_t offset = from.chunk * chunk_bytes_;
  return {hop, from.chunk, offset, std::min(chunk_bytes_, size_bytes_ - offset), from.buffer, 0};
}

std::optional<Pipeline::Step> Pipeline::next() {
  if (is_stopped_) return std::nullopt;
  for (size_t hop = waiting_.size(); hop-- > 0;) {
    const bool is_first = hop == 0, is_last = hop + 1 == waiting_.size();
    if (is_first ? begun_ == chunks_ : waiting_[hop].empty()) continue;
    if (!is_last && free_[hop].empty()) continue;
    Step found = step(hop, is_first ? Waiting{begun_, 0} : waiting_[hop].front());
    if (is_first)
      ++begun_;
    else
      waiting_[hop].erase(waiting_[hop].begin());
    if (!is_last) {
      found.to_buffer = free_[hop].back();
      free_[hop].pop_back();
    }
    ++under_way_;
    return found;
  }
  return std::nullopt;
}

void Pipeline::done(const Step& ended) {
  --under_way_;
  if (ended.hop > 0) free_[ended.hop - 1].push_back(ended.from_buffer);
  if (ended.hop + 1 == waiting_.size())
    ++delivered_;
  else
    waiting_[ended.hop + 1].push_back({ended.chunk, ended.to_buffer});
}

}  // namespace braid::transfer
