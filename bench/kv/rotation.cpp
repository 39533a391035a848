// rotation: KV caches that rotate between one GPU and host memory, SuperInfer's Table 1 on this
// server: by the driver's batches over the GPU's own link, and by braid's over every link, in
// turns. Prints a line of JSON for each size and direction; exit code 1 if a byte was wrong.
//
//   rotation [--blocks 32K,64K,2M,4M] [--bytes 512M] [--turns 7] [--plan 2400] [--gpu 0]
//
// `--bytes` are those that a turn moves in each direction. GB/s are of both directions together, on
// the host's clock from the call until the last byte. "native" and "braid" rotate; "native_batch"
// and "braid_batch" are bare batches of the same blocks, which rotation cannot exceed. The last
// lines are what the call costs its caller for a plan of so many blocks of 64 KiB: with copies, and
// with none ("bookkeeping"). Where braid carries nothing (one GPU, no peers), the first line says
// so: bandwidth is native's alone, and braid's calls hand the driver its own batches. bench/kv/run
// holds the lines against what docs/kv.md requires.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/units.h"
#include "bench/kv/contenders.h"
#include "bench/kv/decoding.h"
#include "kv/braid_copier.h"

namespace braid::bench {
namespace {

using nlohmann::json;

constexpr uint64_t kPlanBlockBytes = 64 << 10;
constexpr uint64_t kDecodeBytes = 256 << 20;
constexpr uint64_t kBesideBlocks = 2048;

struct Command {
  std::vector<uint64_t> block_bytes = {32 << 10, 64 << 10, 2 << 20, 4 << 20};
  uint64_t turn_bytes = 512 << 20;
  int turns = 7;
  uint32_t plan_blocks = 2400;
  int kernels = 1000;
  int gpu = 0;
};

[[noreturn]] void usage() {
  std::fprintf(stderr,
               "rotation [--blocks LIST] [--bytes SIZE] [--turns N] [--plan BLOCKS] [--kernels N] "
               "[--gpu N]\n");
  std::exit(2);
}

template <typename T>
T value_of(const Result<T>& result) {
  if (result.ok()) return result.value();
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

struct Side {
  std::string name;
  std::unique_ptr<Contender> contender;
  std::vector<double> gbps = {};
  std::vector<double> submit_us = {};
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Turns of all sides, the first ones for warming up; who begins changes.
void take_turns(std::vector<Side>& sides, Moves moves, int turns) {
  for (Side& side : sides) {
    side.gbps.clear();
    side.submit_us.clear();
  }
  for (int turn = -1; turn < turns; ++turn) {
    std::rotate(sides.begin(), sides.begin() + 1, sides.end());
    for (Side& side : sides) {
      const Turn taken = side.contender->turn(moves);
      if (turn < 0) continue;
      side.gbps.push_back(taken.gbps());
      side.submit_us.push_back(taken.submit_us);
    }
  }
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

  bool measure_bandwidth(uint64_t block_bytes) const {
    const auto blocks =
        static_cast<uint32_t>(std::max<uint64_t>(command_.turn_bytes / block_bytes, 1));
    std::vector<Side> sides;
    const auto add = [&](const char* name, std::unique_ptr<kv::Copier> rotating,
                         std::unique_ptr<kv::Copier> bare) {
      sides.push_back(
          {name, std::make_unique<RotatingCache>(gpu_, block_bytes, blocks, std::move(rotating))});
      sides.push_back({std::string(name) + "_batch",
                       std::make_unique<BareBatches>(gpu_, block_bytes, blocks, std::move(bare))});
    };
    add("native", native(), native());
    if (is_accelerated_) add("braid", braid(), braid());
    bool is_right = true;
    for (const Moves moves : {Moves::kDown, Moves::kUp, Moves::kBoth}) {
      take_turns(sides, moves, command_.turns);
      bool is_verified = true;
      json line{{"what", "bandwidth"},
                {"block_bytes", block_bytes},
                {"blocks", blocks},
                {"moves", moves_name(moves)}};
      for (Side& side : sides) {
        is_verified = side.contender->verify() && is_verified;
        line[side.name + "_gbps"] = side.gbps;
        line[side.name + "_submit_us"] = median(side.submit_us);
      }
      line["verified"] = is_verified;
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
        sides.push_back({name, std::make_unique<RotatingCache>(gpu_, kPlanBlockBytes, group,
                                                               std::move(copier))});
      };
      add("bookkeeping", std::make_unique<NoCopier>());
      add("native", native());
      if (engine_ != nullptr) add("braid", braid());
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
    sides.push_back(
        {"native", std::make_unique<RotatingCache>(gpu_, kPlanBlockBytes, blocks, native())});
    if (is_accelerated_)
      sides.push_back(
          {"braid", std::make_unique<RotatingCache>(gpu_, kPlanBlockBytes, blocks, braid())});
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
  json first{{"what", "server"}, {"gpus", gpus}, {"braid", outcome}};
  if (!is_accelerated)
    first["note"] =
        "braid carries no batches here: it hands them to the driver, whose bandwidth it is";
  std::printf("%s\n", first.dump().c_str());
  return Race(gpu, engine, is_accelerated, command).run() ? 0 : 1;
}

}  // namespace
}  // namespace braid::bench

int main(int count, char** words) { return braid::bench::run(braid::bench::parse(count, words)); }
