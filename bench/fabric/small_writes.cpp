// A given number of small writes by the library ("braid"), by its engine alone, or by a raw loop,
// for a profiler, which counts the instructions of one write:
//
//   small_writes CONTENDER PROVIDER COUNT [SIZE_BYTES]
//   valgrind --tool=callgrind --toggle-collect='*Contender::write(*' build/bin/small_writes
//     braid local 10000
//
// What a wait costs beyond its write depends on how often it looks before the target has answered,
// and so on the machine.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "bench/fabric/buffers.h"
#include "bench/fabric/contenders.h"
#include "bench/fabric/library_contender.h"

namespace {

using namespace braid::bench;

constexpr uint64_t kUnderWayBytes = 16 << 20;
constexpr uint64_t kDepthMax = 64;
constexpr uint64_t kArrivalLimitNs = 60'000'000'000;

/// Ends the process if a byte is missing.
void race(Contender& contender, const Load& load, const Buffers& buffers) {
  buffers.clear(load);
  const bool is_ready = contender.prepare(load).ok();
  const uint64_t begin_ns = now_ns();
  const bool has_written = is_ready && contender.write(load).ok();
  const double took_ns = static_cast<double>(now_ns() - begin_ns);
  if (!has_written || !buffers.arrived_ns(load, now_ns() + kArrivalLimitNs)) {
    std::fprintf(stderr, "%s: not all bytes have arrived\n", contender.name().c_str());
    std::exit(1);
  }
  contender.rest();
  std::printf("%-8s %8.0f ns a write\n", contender.name().c_str(),
              took_ns / static_cast<double>(load.count));
}

/// The library takes part always: the other process waits for it first.
void race(const std::string& name, const Rails& rails, const Load& load, const Buffers& buffers) {
  TargetProcess target({rails, Pattern::kSingle, name == "engine"}, buffers);
  LibraryContender library(rails, target, buffers.source());
  if (name == "braid") return race(library, load, buffers);
  if (name == "engine") {
    EngineContender engine(rails, target, buffers.source());
    return race(engine, load, buffers);
  }
  PlainContender plain(rails, target, buffers.source());
  race(plain, load, buffers);
}

}  // namespace

int main(int count, char** words) {
  const std::string name = count > 3 ? words[1] : "", provider = count > 3 ? words[2] : "";
  const uint64_t writes = count > 3 ? std::strtoull(words[3], nullptr, 10) : 0;
  const uint64_t size_bytes = count > 4 ? std::strtoull(words[4], nullptr, 10) : 64;
  Rails rails;
  rails.is_local = provider == "local";
  rails.quirks = braid::fabric::ofi::find_quirks(rails.is_local ? "shm" : provider);
  if (rails.quirks == nullptr || writes == 0 || size_bytes == 0) {
    std::fprintf(stderr, "small_writes braid|engine|plain PROVIDER COUNT [SIZE_BYTES]\n");
    return 2;
  }
  const Load load{.size_bytes = size_bytes,
                  .count = writes,
                  .depth = std::clamp<uint64_t>(kUnderWayBytes / size_bytes, 1, kDepthMax)};
  const auto buffers = Buffers::map(load.total_bytes(), false);
  if (!buffers.ok()) {
    std::fprintf(stderr, "%s\n", buffers.status().message().c_str());
    return 1;
  }
  race(name, rails, load, buffers.value());
  return 0;
}
