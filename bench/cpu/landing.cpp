// landing [MiB [THREADS...]]: how fast the pool's threads and the caller copy bytes out of a
// staging ring to memory of the program, in GB/s; the other half of a copy to the host takes no
// time here. Needs no GPU. Medians. The columns:
//   touched    memory that the program has written before
//   fresh      memory that it has not touched, as braid copies there
//   unprepared the same, when nobody makes the pages before they are copied to
//   memcpy     the same, when as many threads each copy a part of their own with memcpy
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <thread>
#include <vector>

#include "multipath/staging/chunks.h"
#include "multipath/staging/fresh_pages.h"
#include "multipath/staging/thread_pool.h"

namespace braid::bench {
namespace {

using namespace multipath;
using namespace multipath::staging;

constexpr int kRounds = 5;

// Where a program's allocator puts a large tensor: behind its own word at the start of a mapping.
class Mapping {
 public:
  explicit Mapping(uint64_t size_bytes) : size_bytes_(size_bytes + kHeaderBytes) {
    memory_ =
        mmap(nullptr, size_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory_ == MAP_FAILED) {
      std::perror("landing: mmap");
      std::exit(1);
    }
  }
  ~Mapping() { munmap(memory_, size_bytes_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  uint8_t* data() { return static_cast<uint8_t*>(memory_) + kHeaderBytes; }

 private:
  static constexpr uint64_t kHeaderBytes = 64;
  const uint64_t size_bytes_;
  void* memory_ = nullptr;
};

using Ring = std::vector<uint8_t>;

const uint8_t* slot(const Ring& ring, int index) {
  return ring.data() + uint64_t(index % kSlots) * kSlotBytes;
}

struct Chunk {
  uint64_t offset, size_bytes;
};

std::vector<Chunk> chunks_of(uint64_t size_bytes) {
  std::vector<Chunk> chunks;
  for (uint64_t at = 0; at < size_bytes; at += chunks.back().size_bytes)
    chunks.push_back({at, chunk_bytes(Direction::kDeviceToHost, static_cast<int>(chunks.size()),
                                      size_bytes - at)});
  return chunks;
}

// As Stager::fetch does, with chunks that are there when they are asked for.
void land(ThreadPool& pool, uint8_t* to, uint64_t size_bytes, const Ring& ring, bool prepares) {
  FreshPages fresh(to, size_bytes);
  std::optional<ThreadPool::Task> populations[kSlots];
  const std::vector<Chunk> chunks = chunks_of(size_bytes);
  for (size_t landed = 0, asked = 0; landed < chunks.size(); ++landed) {
    for (; prepares && asked < std::min(chunks.size(), landed + kSlots); ++asked) {
      const PageRange pages = fresh.find(chunks[asked].offset, chunks[asked].size_bytes);
      if (!pages.is_empty()) populations[asked % kSlots].emplace(pool, pages);
    }
    populations[landed % kSlots].reset();
    ThreadPool::Task(pool, to + chunks[landed].offset, slot(ring, static_cast<int>(landed)),
                     chunks[landed].size_bytes, Stores::kPastCaches)
        .finish();
  }
}

void copy_in_parts(int threads, uint8_t* to, uint64_t size_bytes, const Ring& ring) {
  const uint64_t part_bytes = size_bytes / static_cast<uint64_t>(threads);
  const auto copy_part = [&](int part) {
    const uint64_t begin = part_bytes * static_cast<uint64_t>(part);
    for (uint64_t at = 0; at < part_bytes; at += kSlotBytes)
      std::memcpy(to + begin + at, slot(ring, part), std::min(kSlotBytes, part_bytes - at));
  };
  std::vector<std::thread> others;
  for (int part = 1; part < threads; ++part) others.emplace_back(copy_part, part);
  copy_part(0);
  for (std::thread& thread : others) thread.join();
}

// `copy` gets memory that nobody has touched, each time it is called.
template <typename Copy>
double median_gbps(uint64_t size_bytes, Copy copy) {
  std::vector<double> rates;
  for (int round = 0; round < kRounds; ++round) {
    Mapping memory(size_bytes);
    rates.push_back(static_cast<double>(size_bytes) / copy(memory.data()));
  }
  std::sort(rates.begin(), rates.end());
  return rates[kRounds / 2];
}

template <typename Action>
double duration_ns(Action action) {
  const auto start = std::chrono::steady_clock::now();
  action();
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count();
}

void measure(int threads, uint64_t size_bytes, const Ring& ring) {
  ThreadPool pool(threads);
  const auto land_ns = [&](uint8_t* to, bool prepares) {
    return duration_ns([&] { land(pool, to, size_bytes, ring, prepares); });
  };
  const double touched = median_gbps(size_bytes, [&](uint8_t* to) {
    std::memset(to, 1, size_bytes);
    return land_ns(to, true);
  });
  const double fresh = median_gbps(size_bytes, [&](uint8_t* to) { return land_ns(to, true); });
  const double unprepared =
      median_gbps(size_bytes, [&](uint8_t* to) { return land_ns(to, false); });
  const double parts = median_gbps(size_bytes, [&](uint8_t* to) {
    return duration_ns([&] { copy_in_parts(threads + 1, to, size_bytes, ring); });
  });
  std::printf("%7d %9.1f %9.1f %11.1f %9.1f\n", threads, touched, fresh, unprepared, parts);
  std::fflush(stdout);
}

void run(uint64_t size_bytes, const std::vector<int>& thread_counts) {
  const Ring ring(kSlots * kSlotBytes, 1);
  std::printf("%7s %9s %9s %11s %9s\n", "threads", "touched", "fresh", "unprepared", "memcpy");
  for (const int threads : thread_counts) measure(threads, size_bytes, ring);
}

}  // namespace
}  // namespace braid::bench

int main(int argc, char** argv) {
  const uint64_t mib = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 2048;
  std::vector<int> thread_counts;
  for (int i = 2; i < argc; ++i) thread_counts.push_back(std::atoi(argv[i]));
  if (thread_counts.empty()) thread_counts = {1, 2, 4, 8, 16};
  braid::bench::run(mib << 20, thread_counts);
}
