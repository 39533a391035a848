// `braid tebench`: reads and writes between two processes, with the flags and columns of Mooncake's
// tebench (kvcache-ai/Mooncake, mooncake-transfer-engine/benchmark), and a few more.
#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/status.h"
#include "braid/transfer.h"

namespace braid::tools {

/// Mooncake's flags by their names, where they mean something here.
struct TebenchOptions {
  std::string target_seg_name;
  std::string op_type = "read";
  bool check_consistency = false;
  uint64_t total_buffer_size = 1 << 30;
  uint64_t start_block_size = 4096;
  uint64_t max_block_size = 1 << 26;
  uint64_t start_batch_size = 1;
  uint64_t max_batch_size = 1;
  double duration = 5;  ///< seconds
  int start_num_threads = 1;
  int max_num_threads = 1;
  uint64_t request_interval_us = 0;
  uint64_t deadline_us = 0;
  // Ours.
  std::string pattern = "sweep";
  bool has_own_target = false;  ///< --pair
  double warm_up = 1;           ///< seconds
  int incast = 4;               ///< engines of the pattern of that name
  std::string json_file;
  std::string plot_file;
};

/// One row: what has been measured of one kind of request.
struct TebenchRow {
  std::string what;
  uint64_t block_bytes = 0;
  uint64_t batch = 0;
  int threads = 1;
  uint64_t bytes = 0;  ///< that were moved
  double seconds = 0;
  std::vector<double> tx_us;    ///< of each transfer, in any order
  uint64_t verified_bytes = 0;  ///< that were written, read back and compared
  double cpu_seconds = 0;
  bool has_targets_cpu = false;
};

/// The target's memory, and whoever reads and writes it.
struct Bench {
  TebenchOptions options;
  Transfer* engine = nullptr;
  Transfer::Segment segment{};
  uint64_t target = 0;  ///< address of the target's memory
  std::byte* local = nullptr;
  uint64_t size_bytes = 0;  ///< of both
  int target_process = 0;   ///< of --pair; 0: none
};

/// Runs the requests, and waits. How long that took, in microseconds.
Result<double> transfer_once(Bench& bench, const std::vector<Transfer::Request>& requests);
/// CPU time of this process, and of the target if it is --pair's.
double cpu_seconds(const Bench& bench);
/// `work(thread)` in so many threads, each again and again for the time. Adds to the row.
Status measure(Bench& bench, TebenchRow& row,
               const std::function<Result<double>(int thread)>& work);
/// Writes a pattern, reads it back elsewhere, compares. An error names the first wrong byte.
Status verify(Bench& bench, uint64_t block_bytes, uint64_t count, TebenchRow& row);

Status run_sweep(Bench& bench, std::vector<TebenchRow>& rows);
/// "r1-w8a8", "weights", "mixed" and "incast".
Status run_pattern(Bench& bench, const Transfer::Options& engine, std::vector<TebenchRow>& rows);

void print_head();
void print_row(const TebenchRow& row);
nlohmann::ordered_json to_json(const TebenchRow& row);

void add_tebench_command(CLI::App& app, int& exit_code);

}  // namespace braid::tools
