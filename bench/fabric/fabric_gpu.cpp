// fabric_gpu: writes from a GPU of one process to that of another, against what else the server can
// do, in turns. Prints a line of JSON for each size; exit code 1 if a byte was wrong.
//
//   fabric_gpu [--over local] [--sizes 1M,16M] [--pages 64K] [--memory 64M] [--turns 7]
//              [--gpus 0,1] [--kind plain|mapped]
//
// Memory of GPUs is of cuMemAlloc, which `local` shares by handles of the driver's, or mapped
// memory of cuMemCreate, which it shares by file descriptors.
//
// Over a provider of libfabric, GPU memory is staged: it stands against the slower of the same
// writes between host memory and of multipath's copies from the GPU to pinned host memory. With
// `local` it stands against cuMemcpyPeerAsync in one process, of as many bytes at once.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <sstream>

#include "base/median.h"
#include "base/units.h"
#include "bench/fabric/gpu_pair.h"
#include "multipath/engine.h"

namespace braid::bench {
namespace {

constexpr double kTurnSeconds = 0.2;

struct Job {
  uint64_t size_bytes;
  bool is_paged;
};

struct Command {
  GpuPairOptions pair;
  std::vector<Job> jobs;
  int turns = 7;
};

[[noreturn]] void usage() {
  std::fprintf(stderr,
               "fabric_gpu [--over PROVIDER] [--sizes LIST] [--pages LIST] [--memory SIZE] "
               "[--turns N] [--gpus WRITER,OWNER] [--kind plain|mapped]\n");
  std::exit(2);
}

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> words;
  std::istringstream text(list);
  for (std::string word; std::getline(text, word, ',');) words.push_back(word);
  return words;
}

uint64_t size_of(const std::string& text) {
  const Result<uint64_t> size = parse_size(text);
  if (!size.ok()) usage();
  return size.value();
}

Command parse(int count, char** words) {
  Command command;
  bool has_jobs = false;
  for (int i = 1; i + 1 < count; i += 2) {
    const std::string name = words[i], value = words[i + 1];
    if (name == "--over") command.pair.wire = value;
    if (name == "--memory") command.pair.memory_bytes = size_of(value);
    if (name == "--turns") command.turns = std::max(std::atoi(value.c_str()), 1);
    if (name == "--kind") command.pair.is_mapped = value == "mapped";
    if (name == "--gpus")
      std::sscanf(value.c_str(), "%d,%d", &command.pair.gpus[0], &command.pair.gpus[1]);
    if (name != "--sizes" && name != "--pages") continue;
    has_jobs = true;
    for (const std::string& size : split(value))
      command.jobs.push_back({size_of(size), name == "--pages"});
  }
  if (count % 2 == 0) usage();
  if (!has_jobs) command.jobs = {{1 << 20, false}, {16 << 20, false}, {64 << 10, true}};
  return command;
}

double seconds_of(const std::function<void()>& moving) {
  const auto begin = std::chrono::steady_clock::now();
  moving();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Copies from the GPU to pinned host memory, as the library makes them.
class CopiesToHost {
 public:
  explicit CopiesToHost(const GpuPair& pair) : pair_(pair), driver_(pair.driver()) {
    must(driver_, driver_.cuCtxSetCurrent(pair.memories().context), "cuCtxSetCurrent");
    size_bytes_ = pair.memories().of_gpu().size();
    must(driver_, driver_.cuMemHostAlloc(&host_, size_bytes_, CU_MEMHOSTALLOC_PORTABLE),
         "cuMemHostAlloc");
    must(driver_, driver_.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    auto engine = multipath::Engine::open(driver_, Options{});
    if (engine.ok()) engine_ = std::move(engine).value();  // else every copy is the driver's
  }
  void copy(uint64_t times) {
    for (uint64_t i = 0; i < times; ++i) {
      const CUdeviceptr from = pair_.memories().address;
      const bool is_carried =
          engine_ != nullptr &&
          engine_->submit({multipath::Direction::kDeviceToHost, host_, from, size_bytes_,
                           stream_}) == multipath::Verdict::kAccelerated;
      if (!is_carried)
        must(driver_, driver_.cuMemcpyDtoHAsync(host_, from, size_bytes_, stream_), "a copy");
    }
    must(driver_, driver_.cuStreamSynchronize(stream_), "cuStreamSynchronize");
  }

 private:
  const GpuPair& pair_;
  const cuda::Driver& driver_;
  uint64_t size_bytes_ = 0;
  void* host_ = nullptr;
  CUstream stream_ = nullptr;
  std::unique_ptr<multipath::Engine> engine_;
};

/// Copies between the two GPUs in this process, as large as the writes are, in one stream.
class PeerCopies {
 public:
  PeerCopies(const GpuPair& pair, int gpu) : pair_(pair), driver_(pair.driver()) {
    size_bytes_ = pair.memories().of_gpu().size();
    int count = 0, from = 0;
    must(driver_, driver_.cuDeviceGetCount(&count), "cuDeviceGetCount");
    must(driver_, driver_.cuDeviceGet(&from, gpu % count), "cuDeviceGet");
    must(driver_, driver_.cuDevicePrimaryCtxRetain(&context_, from), "cuDevicePrimaryCtxRetain");
    must(driver_, driver_.cuCtxSetCurrent(context_), "cuCtxSetCurrent");
    must(driver_, driver_.cuMemAlloc(&target_, size_bytes_), "cuMemAlloc");
    must(driver_, driver_.cuCtxSetCurrent(pair.memories().context), "cuCtxSetCurrent");
    if (context_ != pair.memories().context) driver_.cuCtxEnablePeerAccess(context_, 0);
    must(driver_, driver_.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  }
  void copy(uint64_t copy_bytes, uint64_t times) {
    must(driver_, driver_.cuCtxSetCurrent(pair_.memories().context), "cuCtxSetCurrent");
    const CUdeviceptr source = pair_.memories().address;
    for (uint64_t i = 0; i < times; ++i)
      for (uint64_t at = 0; at + copy_bytes <= size_bytes_; at += copy_bytes)
        must(driver_,
             driver_.cuMemcpyPeerAsync(target_ + at, context_, source + at,
                                       pair_.memories().context, copy_bytes, stream_),
             "cuMemcpyPeerAsync");
    must(driver_, driver_.cuStreamSynchronize(stream_), "cuStreamSynchronize");
  }

 private:
  const GpuPair& pair_;
  const cuda::Driver& driver_;
  uint64_t size_bytes_ = 0;
  CUcontext context_ = nullptr;
  CUdeviceptr target_ = 0;
  CUstream stream_ = nullptr;
};

/// One of what is compared: a way to move all memory some times.
struct Side {
  const char* name;
  std::function<void(uint64_t times)> move;
  bool counts = true;        ///< for the ratio
  uint64_t moved_bytes = 0;  ///< each time
  uint64_t times = 1;
  std::vector<double> gbps;
};

/// How many times take a turn's length; also warms up.
void calibrate(Side& side) {
  side.move(1);
  const double seconds = seconds_of([&] { side.move(1); });
  side.times = std::max<uint64_t>(static_cast<uint64_t>(kTurnSeconds / seconds), 1);
}

/// What braid stands against: the slowest of those that count.
class Others {
 public:
  Others(GpuPair& pair, const Command& command) : pair_(pair), command_(command) {
    if (command.pair.wire == "local")
      peer_copies_ = std::make_unique<PeerCopies>(pair, command.pair.gpus[1]);
    else
      copies_to_host_ = std::make_unique<CopiesToHost>(pair);
  }
  std::vector<Side> sides(const Job& job) const;

 private:
  GpuPair& pair_;
  const Command& command_;
  std::unique_ptr<PeerCopies> peer_copies_;
  std::unique_ptr<CopiesToHost> copies_to_host_;
};

std::vector<Side> Others::sides(const Job& job) const {
  const uint64_t all_bytes = command_.pair.memory_bytes, size_bytes = job.size_bytes;
  const auto side = [](const char* name, bool counts, uint64_t moved_bytes, auto move) {
    Side made;
    made.moved_bytes = moved_bytes;
    made.name = name;
    made.counts = counts;
    made.move = move;
    return made;
  };
  if (peer_copies_ != nullptr) {
    PeerCopies* peer = peer_copies_.get();
    return {
        side("peer_copy", true, all_bytes, [=](uint64_t times) { peer->copy(all_bytes, times); }),
        side("peer_copies", false, all_bytes / size_bytes * size_bytes,
             [=](uint64_t times) { peer->copy(size_bytes, times); })};
  }
  CopiesToHost* copies = copies_to_host_.get();
  const auto from_host = [pair = &pair_, job](uint64_t times) {
    pair->write(GpuPair::Kind::kHost, job.size_bytes, job.is_paged, times);
  };
  return {side("host", true, pair_.written_bytes(size_bytes, job.is_paged), from_host),
          side("multipath", true, all_bytes, [=](uint64_t times) { copies->copy(times); })};
}

/// The slowest of those that count, by its median.
const Side& slowest_of(const std::vector<Side>& others) {
  const Side* slowest = nullptr;
  for (const Side& other : others)
    if (other.counts && (slowest == nullptr || median(other.gbps) < median(slowest->gbps)))
      slowest = &other;
  return *slowest;
}

bool compare(GpuPair& pair, const Command& command, const Job& job, const Others& against) {
  Side braid;
  braid.name = "braid";
  braid.moved_bytes = pair.written_bytes(job.size_bytes, job.is_paged);
  braid.move = [&](uint64_t times) {
    pair.write(GpuPair::Kind::kGpu, job.size_bytes, job.is_paged, times);
  };
  std::vector<Side> others = against.sides(job);
  const bool is_right = pair.verify(GpuPair::Kind::kGpu, job.size_bytes, job.is_paged);
  calibrate(braid);
  for (Side& other : others) calibrate(other);
  std::vector<double> ratios;
  const auto turn = [&](Side& side) {
    const double seconds = seconds_of([&] { side.move(side.times); });
    side.gbps.push_back(static_cast<double>(side.times * side.moved_bytes) / seconds / 1e9);
    return side.gbps.back();
  };
  for (int i = 0; i < command.turns; ++i) {
    const double reached = turn(braid);
    double slowest = std::numeric_limits<double>::max();
    for (Side& other : others) {
      const double others_gbps = turn(other);
      if (other.counts) slowest = std::min(slowest, others_gbps);
    }
    ratios.push_back(reached / slowest);
  }
  std::printf(
      "{\"provider\": \"%s\", \"pattern\": \"%s\", \"size_bytes\": %llu, \"rails\": 1, "
      "\"braid_gbps\": %.2f",
      command.pair.wire.c_str(), job.is_paged ? "gpu_paged" : "gpu_single",
      static_cast<unsigned long long>(job.size_bytes), median(braid.gbps));
  for (const Side& other : others)
    std::printf(", \"%s_gbps\": %.2f", other.name, median(other.gbps));
  std::printf(", \"against\": \"%s\", \"against_gbps\": %.2f", slowest_of(others).name,
              median(slowest_of(others).gbps));
  const bool is_still_right = pair.verify(GpuPair::Kind::kGpu, job.size_bytes, job.is_paged);
  std::printf(", \"ratio\": %.3f, \"verified\": %s}\n", median(ratios),
              is_right && is_still_right ? "true" : "false");
  std::fflush(stdout);
  return is_right && is_still_right;
}

}  // namespace
}  // namespace braid::bench

int main(int count, char** words) {
  using namespace braid::bench;
  const Command command = parse(count, words);
  GpuPair pair(command.pair);
  const Others others(pair, command);
  bool are_right = true;
  for (const Job& job : command.jobs) are_right = compare(pair, command, job, others) && are_right;
  return are_right ? 0 : 1;
}
