// rotation: KV caches that rotate between one GPU and host memory, SuperInfer's Table 1 on this
// server: by the driver's batches over the GPU's own link, and by braid's over every link, in
// turns. Prints a line of JSON for each size and direction; exit code 1 if a byte was wrong.
//
//   rotation [--blocks 32K,64K,2M,4M] [--bytes 512M] [--turns 7] [--plan 2400] [--gpu 0]
//            [--segments 4K,16K,64K,256K,1M,4M,8M,32M] [--counts LIST]
//
// `--bytes` are those that a turn moves in each direction; of `--counts` of segments of 64 KiB, if
// none are given, a sixteenth of them to four times as many: 512,2048,8192,32768 of 512M. GB/s are
// of both directions together, on the host's clock from the call until the last byte. "native",
// "braid", "sparing" (every link, by copy engines on the GPU itself: braid_copy_batch_sparing) and
// "kernel" (one link, by braid's kernel: kernel_copier.h) rotate; "native_batch" and "braid_batch"
// are bare batches of the same blocks, which rotation cannot exceed. "sparing_relayed" is the part
// of its bytes that relays have carried so far. "table_1" has the methods of that table. "segment"
// are bare copies by size: one by one, in the driver's batches, and in braid's; and of one by one
// what the call takes, and the copy (figures 4, 5 and 12). The last lines are what the call costs
// its caller for a plan of so many blocks of 64 KiB: with copies, and with none ("bookkeeping").
// Where braid carries nothing (one GPU, no peers), the first line says so: bandwidth is native's
// alone, and braid's calls hand the driver its own batches. bench/kv/run holds the lines against
// what docs/kv.md requires.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/median.h"
#include "base/units.h"
#include "bench/kv/contenders.h"
#include "bench/kv/decoding.h"
#include "bench/kv/segment_times.h"
#include "bench/kv/turns.h"
#include "kv/braid_copier.h"
#include "kv/kernel_copier.h"

namespace braid::bench {
namespace {

using nlohmann::json;

constexpr uint64_t kPlanBlockBytes = 64 << 10;
// Of Qwen2.5-32B: a layer's share of a block, and a whole block.
constexpr uint64_t kSegmentBytes = 64 << 10;
constexpr uint64_t kMergedBytes = 4 << 20;
// As many as one plan of many requests has.
constexpr uint64_t kSegmentsMax = 4096;
constexpr uint64_t kDecodeBytes = 256 << 20;
constexpr uint64_t kBesideBlocks = 2048;

struct Command {
  std::vector<uint64_t> block_bytes = {32 << 10, 64 << 10, 2 << 20, 4 << 20};
  std::vector<uint64_t> segment_bytes = {4 << 10, 16 << 10, 64 << 10, 256 << 10,
                                         1 << 20, 4 << 20,  8 << 20,  32 << 20};
  std::vector<uint64_t> segment_counts = {};  // by turn_bytes, where none are asked for
  uint64_t turn_bytes = 512 << 20;
  int turns = 7;
  uint32_t plan_blocks = 2400;
  int kernels = 1000;
  int gpu = 0;
};

[[noreturn]] void usage() {
  std::fprintf(
      stderr,
      "rotation [--blocks LIST] [--segments LIST] [--counts LIST] [--bytes SIZE] "
      "[--turns N] [--plan BLOCKS] [--kernels N] [--gpu N]\n"
      "--counts without a LIST: 1/16, 1/4, 1 and 4 times --bytes, in segments of 64 KiB\n");
  std::exit(2);
}

template <typename T>
T value_of(Result<T> result) {
  if (result.ok()) return std::move(result).value();
  std::fprintf(stderr, "rotation: %s\n", result.status().message().c_str());
  usage();
}

Command parse(int count, char** words) {
  Command command;
  if (count % 2 == 0) usage();
  for (int i = 1; i + 1 < count; i += 2) {
    const std::string name = words[i], text = words[i + 1];
    if (name == "--blocks")
      command.block_bytes = value_of(parse_size_list(text));
    else if (name == "--segments")
      command.segment_bytes = value_of(parse_size_list(text));
    else if (name == "--counts")
      command.segment_counts = value_of(parse_size_list(text));
    else if (name == "--bytes")
      command.turn_bytes = value_of(parse_size(text));
    else if (name == "--turns")
      command.turns = std::max(std::atoi(text.c_str()), 1);
    else if (name == "--plan")
      command.plan_blocks = static_cast<uint32_t>(std::max(std::atoi(text.c_str()), 2));
    else if (name == "--kernels")
      command.kernels = std::max(std::atoi(text.c_str()), 1);
    else if (name == "--gpu")
      command.gpu = std::atoi(text.c_str());
    else
      usage();
  }
  if (command.segment_counts.empty())
    for (const uint64_t part : {1, 4, 16, 64})
      command.segment_counts.push_back(
          std::max<uint64_t>(command.turn_bytes / kSegmentBytes * part / 16, 1));
  return command;
}

/// Moves nothing: what is left is what rotation itself costs.
class NoCopier final : public kv::Copier {
 public:
  Status copy(std::span<const library::Copy>, CUstream, kv::Urgency) override { return {}; }
};

struct CloseEngine {
  void operator()(braid_engine* engine) const { braid_close(engine); }
};
using Engine = std::unique_ptr<braid_engine, CloseEngine>;

/// What braid says of a batch as it will come: "accelerated", or why not.
std::string outcome_of_batches(const Gpu& gpu, braid_engine* engine) {
  constexpr uint32_t kBlocks = 1024;
  const DeviceMemory memory(gpu, kBlocks * kPlanBlockBytes);
  auto host = kv::HostPool::open(gpu.driver, kBlocks * kPlanBlockBytes);
  if (!host.ok()) return host.status().message();
  std::vector<void*> to;
  std::vector<const void*> from;
  const std::vector<size_t> sizes(kBlocks, kPlanBlockBytes);
  for (uint64_t i = 0; i < kBlocks; ++i) {
    to.push_back(reinterpret_cast<void*>(memory.at(i * kPlanBlockBytes)));
    from.push_back(host.value()->data() + i * kPlanBlockBytes);
  }
  braid_outcome outcome{sizeof(braid_outcome), 0, 0, ""};
  if (braid_forecast(engine, to.data(), from.data(), sizes.data(), kBlocks, gpu.compute,
                     BRAID_PRIORITY_URGENT, &outcome) != BRAID_OK)
    return braid_last_error();
  return outcome.reason;
}

class Race {
 public:
  /// `engine` may be null.
  Race(const Gpu& gpu, braid_engine* engine, bool is_accelerated, const Command& command)
      : gpu_(gpu), engine_(engine), is_accelerated_(is_accelerated), command_(command) {}

  /// False: a byte was wrong.
  bool run() {
    bool is_right = true;
    for (const uint64_t block_bytes : command_.block_bytes)
      is_right = measure_bandwidth(block_bytes) && is_right;
    is_right = measure_table_1() && is_right;
    for (const uint64_t size_bytes : command_.segment_bytes)
      is_right = measure_segments(size_bytes, std::clamp<uint64_t>(command_.turn_bytes / size_bytes,
                                                                   1, kSegmentsMax)) &&
                 is_right;
    for (const uint64_t count : command_.segment_counts)
      is_right = measure_segments(kSegmentBytes, count) && is_right;
    is_right = measure_calls() && is_right;
    measure_kernels();
    return is_right;
  }

 private:
  std::unique_ptr<kv::Copier> native() const {
    return std::make_unique<kv::NativeCopier>(gpu_.driver);
  }
  std::unique_ptr<kv::Copier> braid() const {
    return std::make_unique<kv::BraidCopier>(kv::calls_of(engine_));
  }
  std::unique_ptr<kv::Copier> sparing() const {
    return std::make_unique<kv::BraidCopier>(kv::calls_of(engine_, braid_copy_batch_sparing));
  }
  std::unique_ptr<kv::Copier> kernel() const {
    return value_of(kv::KernelCopier::open(gpu_.driver, std::span(&gpu_.context, 1)));
  }
  // One that rotates over this copier.
  Side rotating(const char* name, uint64_t block_bytes, uint32_t blocks,
                std::unique_ptr<kv::Copier> copier) const {
    return {name, std::make_unique<RotatingCache>(gpu_, block_bytes, blocks, std::move(copier))};
  }

  bool measure_bandwidth(uint64_t block_bytes) const {
    const auto blocks =
        static_cast<uint32_t>(std::max<uint64_t>(command_.turn_bytes / block_bytes, 1));
    std::vector<Side> sides;
    const auto add = [&](const char* name, std::unique_ptr<kv::Copier> copier,
                         std::unique_ptr<kv::Copier> bare) {
      sides.push_back(rotating(name, block_bytes, blocks, std::move(copier)));
      sides.push_back({std::string(name) + "_batch",
                       std::make_unique<BareBatches>(gpu_, block_bytes, blocks, std::move(bare))});
    };
    add("native", native(), native());
    if (is_accelerated_) add("braid", braid(), braid());
    if (is_accelerated_) sides.push_back(rotating("sparing", block_bytes, blocks, sparing()));
    sides.push_back(rotating("kernel", block_bytes, blocks, kernel()));
    bool is_right = true;
    for (const Moves moves : {Moves::kDown, Moves::kUp, Moves::kBoth}) {
      take_turns(sides, moves, command_.turns);
      const bool is_verified = verify(sides);
      json line{{"what", "bandwidth"},
                {"block_bytes", block_bytes},
                {"blocks", blocks},
                {"moves", moves_name(moves)}};
      for (const Side& side : sides) {
        line[side.name + "_gbps"] = side.gbps;
        line[side.name + "_submit_us"] = median(side.submit_us);
        const kv::Carried carried = side.contender->carried();
        if (side.name == "sparing")
          line["sparing_relayed"] =
              static_cast<double>(carried.accelerated_bytes) /
              static_cast<double>(carried.accelerated_bytes + carried.native_bytes);
      }
      line["verified"] = is_verified;
      print(line);
      is_right = is_right && is_verified;
    }
    return is_right;
  }

  // The methods of SuperInfer's Table 1: GB/s of each direction by itself, and the time of both.
  // Rotation moves both at once, the others one after the other.
  bool measure_table_1() const {
    const uint64_t segments = std::max<uint64_t>(command_.turn_bytes / kSegmentBytes, 1);
    const uint64_t merged = std::max<uint64_t>(command_.turn_bytes / kMergedBytes, 1);
    std::vector<Side> sides;
    const auto add_serial = [&](const char* name, uint64_t copy_bytes, uint64_t copies,
                                std::unique_ptr<kv::Copier> copier) {
      sides.push_back(
          {name, std::make_unique<BareBatches>(gpu_, copy_bytes, static_cast<uint32_t>(copies),
                                               std::move(copier), Duplex::kSerial)});
    };
    add_serial("naive", kSegmentBytes, segments, std::make_unique<OneByOneCopier>(gpu_.driver));
    add_serial("ms", kMergedBytes, merged, std::make_unique<OneByOneCopier>(gpu_.driver));
    add_serial("ms_mk", kMergedBytes, merged, native());
    sides.push_back(rotating("duplex", kMergedBytes, static_cast<uint32_t>(merged), native()));
    if (is_accelerated_)
      sides.push_back(rotating("braid", kMergedBytes, static_cast<uint32_t>(merged), braid()));
    json line{{"what", "table_1"}, {"bytes", merged * kMergedBytes}};
    bool is_right = true;
    for (const Moves moves : {Moves::kDown, Moves::kUp, Moves::kBoth}) {
      take_turns(sides, moves, command_.turns);
      is_right = verify(sides) && is_right;
      for (const Side& side : sides) {
        line[side.name][std::string(moves_name(moves)) + "_gbps"] = side.gbps;
        if (moves == Moves::kBoth) line[side.name]["both_s"] = side.seconds;
      }
    }
    line["verified"] = is_right;
    print(line);
    return is_right;
  }

  bool measure_segments(uint64_t size_bytes, uint64_t count) const {
    const auto copies = static_cast<uint32_t>(count);
    std::vector<Side> sides;
    const auto add = [&](const char* name, std::unique_ptr<kv::Copier> copier) {
      sides.push_back(
          {name, std::make_unique<BareBatches>(gpu_, size_bytes, copies, std::move(copier))});
    };
    add("one_by_one", std::make_unique<OneByOneCopier>(gpu_.driver));
    add("native", native());
    if (is_accelerated_) add("braid", braid());
    bool is_right = true;
    SegmentTimes times(gpu_);
    for (const Moves moves : {Moves::kDown, Moves::kUp, Moves::kBoth}) {
      take_turns(sides, moves, command_.turns);
      const bool is_verified = verify(sides);
      json line{{"what", "segment"},
                {"segment_bytes", size_bytes},
                {"segments", copies},
                {"moves", moves_name(moves)},
                {"verified", is_verified}};
      for (const Side& side : sides) line[side.name + "_gbps"] = side.gbps;
      for (int turn = 0; moves != Moves::kBoth && turn < command_.turns; ++turn) {
        const SegmentTimes::Times taken = times.of(size_bytes, moves == Moves::kDown);
        line["call_us"].push_back(taken.call_us);
        line["transfer_us"].push_back(taken.transfer_us);
      }
      print(line);
      is_right = is_right && is_verified;
    }
    return is_right;
  }

  bool measure_calls() const {
    const uint32_t blocks = command_.plan_blocks;
    bool is_right = true;
    for (const Moves moves : {Moves::kDown, Moves::kUp, Moves::kBoth}) {
      // Both ways, half of the plan goes each way.
      const uint32_t group = moves == Moves::kBoth ? blocks / 2 : blocks;
      std::vector<Side> sides;
      const auto add = [&](const char* name, std::unique_ptr<kv::Copier> copier) {
        sides.push_back(rotating(name, kPlanBlockBytes, group, std::move(copier)));
      };
      add("bookkeeping", std::make_unique<NoCopier>());
      add("native", native());
      add("kernel", kernel());
      if (engine_ != nullptr) add("braid", braid());
      if (is_accelerated_) add("sparing", sparing());
      take_turns(sides, moves, command_.turns);
      json line{{"what", "call"},
                {"block_bytes", kPlanBlockBytes},
                {"blocks", blocks},
                {"moves", moves_name(moves)}};
      bool is_verified = true;
      for (Side& side : sides) {
        if (side.name != "bookkeeping") is_verified = side.contender->verify() && is_verified;
        line[side.name + "_submit_us"] = side.submit_us;
      }
      line["verified"] = is_verified;
      print(line);
      is_right = is_right && is_verified;
    }
    return is_right;
  }

  // Alone before each turn: what a GPU does at full power changes with its heat.
  void measure_kernels() const {
    const auto blocks = static_cast<uint32_t>(
        std::clamp<uint64_t>(command_.turn_bytes / kPlanBlockBytes, 1, kBesideBlocks));
    Decoding decoding(gpu_, kDecodeBytes);
    std::vector<Side> sides;
    sides.push_back(rotating("native", kPlanBlockBytes, blocks, native()));
    sides.push_back(rotating("kernel", kPlanBlockBytes, blocks, kernel()));
    if (is_accelerated_) {
      sides.push_back(rotating("braid", kPlanBlockBytes, blocks, braid()));
      sides.push_back(rotating("sparing", kPlanBlockBytes, blocks, sparing()));
    }
    json line{{"what", "beside"},
              {"block_bytes", kPlanBlockBytes},
              {"blocks", blocks},
              {"kernels", command_.kernels}};
    decoding.alone_s(command_.kernels);
    for (int turn = 0; turn < command_.turns; ++turn)
      for (Side& side : sides) {
        const double alone_s = decoding.alone_s(command_.kernels);
        const auto [seconds, moved_bytes] = decoding.beside(command_.kernels, *side.contender);
        const double moved_gb = static_cast<double>(moved_bytes) / 1e9;
        line["kernel_us"].push_back(alone_s * 1e6 / command_.kernels);
        line[side.name + "_slow_down"].push_back(seconds / alone_s);
        line[side.name + "_gbps"].push_back(moved_gb / seconds);
        line[side.name + "_us_by_gb"].push_back((seconds - alone_s) * 1e6 / moved_gb);
      }
    print(line);
  }

  static void print(const json& line) {
    std::printf("%s\n", line.dump().c_str());
    std::fflush(stdout);
  }

  const Gpu& gpu_;
  braid_engine* engine_;
  const bool is_accelerated_;
  const Command& command_;
};

int run(const Command& command) {
  const auto opened = cuda::open_driver();
  if (!opened.ok()) {
    std::fprintf(stderr, "rotation: %s\n", opened.status().message().c_str());
    return 1;
  }
  const cuda::Driver& driver = opened.value();
  must(driver, driver.cuInit(0), "cuInit");
  int gpus = 0;
  CUdevice device = 0;
  Gpu gpu{driver};
  must(driver, driver.cuDeviceGetCount(&gpus), "counting the GPUs");
  must(driver, driver.cuDeviceGet(&device, command.gpu), "opening the GPU");
  must(driver, driver.cuDevicePrimaryCtxRetain(&gpu.context, device), "opening the GPU");
  must(driver, driver.cuCtxSetCurrent(gpu.context), "opening the GPU");
  must(driver, driver.cuStreamCreate(&gpu.compute, CU_STREAM_NON_BLOCKING), "a stream");
  braid_engine* engine = nullptr;
  std::string outcome;
  if (braid_open(nullptr, &engine) != BRAID_OK)
    outcome = braid_last_error();
  else
    outcome = outcome_of_batches(gpu, engine);
  const Engine kept(engine);
  const bool is_accelerated = outcome == "accelerated";
  char name[256] = "";
  must(driver, driver.cuDeviceGetName(name, sizeof name, device), "the GPU's name");
  json first{{"what", "server"}, {"gpu", name}, {"gpus", gpus}, {"braid", outcome}};
  if (!is_accelerated)
    first["note"] =
        "braid carries no batches here: it hands them to the driver, whose bandwidth it is";
  std::printf("%s\n", first.dump().c_str());
  return Race(gpu, engine, is_accelerated, command).run() ? 0 : 1;
}

}  // namespace
}  // namespace braid::bench

int main(int count, char** words) { return braid::bench::run(braid::bench::parse(count, words)); }
