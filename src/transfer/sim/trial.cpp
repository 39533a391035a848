#include "transfer/sim/trial.h"

#include <fmt/format.h>

#include <algorithm>

namespace braid::transfer::sim {

Trial::Trial(const Cluster& cluster, Method method, uint64_t seed)
    : method_(method), seed_(seed), network_(cluster, seed), threads_(network_) {
  add_process();
}

size_t Trial::add_process(int host) {
  const size_t index = processes_.size();
  processes_.push_back(std::make_unique<Process>(network_, host, method_, seed_ * 1000 + index));
  processes_.back()->on_delivered = [this](uint64_t bytes, uint64_t now_ns) {
    timeline_.add(bytes, now_ns);
  };
  return index;
}

std::vector<Process*> Trial::processes() {
  std::vector<Process*> all;
  for (const auto& process : processes_) all.push_back(process.get());
  return all;
}

std::vector<Demand> Trial::add(const Loop& loop, size_t process) {
  std::vector<Demand> demands;
  for (int i = 0; i < loop.threads; ++i) {
    ThreadSpec spec;
    spec.process = processes_[process].get();
    spec.batch.sizes_bytes = loop.sizes_bytes;
    spec.batch.direction = loop.direction;
    spec.batch.urgency = loop.urgency;
    spec.batch.source = loop.first_source + static_cast<uint32_t>(i);
    std::tie(spec.batch.ours, spec.batch.theirs) =
        loop.memory ? loop.memory(i) : host_memory(network_.cluster(), i);
    // Threads do not begin in the same nanosecond.
    spec.begin_ns = loop.begin_ns + 700 * static_cast<uint64_t>(i);
    spec.pause_ns = loop.pause_ns;
    spec.end_ns = loop.end_ns;
    threads_.add(spec);
    demands.push_back({spec.batch.ours, spec.batch.theirs, loop.direction});
  }
  return demands;
}

Measured over_seeds(int seeds, const std::function<Measured(uint64_t seed)>& run) {
  Measured sum;
  for (int seed = 1; seed <= seeds; ++seed) {
    const Measured one = run(static_cast<uint64_t>(seed));
    sum.gbps += one.gbps / seeds;
    sum.failed += one.failed;
    sum.took_us.insert(sum.took_us.end(), one.took_us.begin(), one.took_us.end());
  }
  std::sort(sum.took_us.begin(), sum.took_us.end());
  return sum;
}

std::pair<Memory, Memory> host_memory(const Cluster& cluster, int thread) {
  const Place place = cluster.host_place(thread % cluster.numa_nodes);
  return {{0, place}, {1, place}};
}

std::string size_text(uint64_t size_bytes) {
  return size_bytes >= 1 << 20 ? fmt::format("{} MB", size_bytes >> 20)
                               : fmt::format("{} KB", size_bytes >> 10);
}

}  // namespace braid::transfer::sim
