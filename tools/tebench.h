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
#include "tools/transfer_target.h"

namespace braid::tools {

/// Mooncake's flags by their names, where they mean something here.
struct TebenchOptions {
  std::string target_seg_name;
  std::string seg_type = "DRAM";
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
  uint64_t target_offset = 0;
  uint64_t target_range_size = 0;  ///< 0: up to the end
  uint64_t request_interval_us = 0;
  uint64_t deadline_us = 0;
  int deadline_tight_threads = -1;  ///< the first ones, which have the deadline; -1: all
  int local_gpu_id = 0;
  bool notifi = false;
  std::string tent_intent_type = "unspec";
  std::string qos_classes;
  std::string qos_classes_json;
  std::string workload_classes_json;
  // Ours.
  std::string pattern = "sweep";
  bool has_own_target = false;  ///< --pair
  double warm_up = 1;           ///< seconds
  int incast = 4;               ///< engines of the pattern of that name
  std::string json_file;
  std::string plot_file;

  bool is_on_gpu() const { return seg_type == "VRAM"; }
};

/// Threads that do the same.
struct TebenchClass {
  std::string name;
  int threads = 1;
  double slo_us = 0;  ///< of a transfer; 0: none
  uint64_t block_bytes = 0;
  uint64_t batch = 0;
  Transfer::Urgency urgency = Transfer::Urgency::kBulk;
  uint64_t deadline_us = 0;
};
/// Those of --workload_classes_json, --qos_classes_json or --qos_classes. Classes of the latter two
/// have no blocks of their own.
Result<std::vector<TebenchClass>> parse_classes(const TebenchOptions& options);
/// What Mooncake calls `foreground_get` is urgent.
Transfer::Urgency urgency_of(const std::string& intent_type);

/// What one thread has seen.
struct TebenchThread {
  std::vector<double> tx_us;  ///< of each transfer that was done
  uint64_t late = 0;          ///< transfers that ended behind their deadline, or by it
};

/// One row: what has been measured of one kind of request.
struct TebenchRow {
  std::string what;
  uint64_t block_bytes = 0;
  uint64_t batch = 0;
  int threads = 1;
  double seconds = 0;  ///< without what was spent on patterns and comparisons
  std::vector<TebenchThread> by_thread;
  uint64_t verified_bytes = 0;  ///< that were written, read back and compared
  double slo_us = 0;            ///< 0: none
  double cpu_seconds = 0;       ///< without what was spent on patterns and comparisons
  bool has_targets_cpu = false;
  bool shares_cpu = false;  ///< other rows ran at the same time: the CPU seconds are of all
};
/// The same of some of its threads.
TebenchRow of_threads(const TebenchRow& row, size_t first, size_t count);

/// The target's memory, and whoever reads and writes it.
struct Bench {
  TebenchOptions options;
  Transfer* engine = nullptr;
  Transfer::Segment segment{};
  uint64_t target = 0;  ///< address of the target's memory
  const TransferMemory* memory = nullptr;
  std::byte* local = nullptr;  ///< where the memory lies
  uint64_t size_bytes = 0;     ///< of both
  int target_process = 0;      ///< of --pair; 0: none

  /// For so many threads at once; without a product that may overflow.
  bool has_room(uint64_t block_bytes, uint64_t batch, int threads) const {
    return block_bytes <= size_bytes / batch / static_cast<uint64_t>(threads);
  }
};

/// What a thread does once: one transfer, or a write and the read that checks it.
struct Turn {
  TebenchThread moved;
  double aside_s = 0;      ///< spent on patterns and comparisons
  double aside_cpu_s = 0;  ///< the same of this thread's CPU time
  uint64_t verified_bytes = 0;
};

using Requests = std::vector<Transfer::Request>;

/// Runs the requests, and waits.
Status transfer_once(Bench& bench, const Requests& requests, Turn& turn);
/// Fills the near side of the requests with bytes that belong to their far side and `salt`.
Status fill(const Bench& bench, const Requests& requests, uint64_t salt, Turn& turn);
/// Whether the near side has these bytes. The error names the first wrong one.
Status compare(const Bench& bench, const Requests& requests, uint64_t salt, Turn& turn);
/// Writes a pattern by these requests, wipes it here, reads it back by them, and compares.
Status write_and_read_back(Bench& bench, Requests requests, Turn& turn);
/// The same, beside what is measured.
Status verify(Bench& bench, Requests requests, TebenchRow& row);

/// CPU time of this process, and of the target if it is --pair's.
double cpu_seconds(const Bench& bench);
/// `work(thread)` in so many threads, each again and again for the time. Adds to the row.
Status measure(Bench& bench, TebenchRow& row,
               const std::function<Status(int thread, Turn& turn)>& work);

Status run_sweep(Bench& bench, std::vector<TebenchRow>& rows);
/// --workload_classes_json: all at once, a row of each.
Status run_classes(Bench& bench, std::vector<TebenchRow>& rows);
/// "r1-w8a8", "weights", "mixed" and "incast".
Status run_pattern(Bench& bench, const Transfer::Options& engine, std::vector<TebenchRow>& rows);

/// Mooncake's columns, and ours behind them.
void print_head();
void print_row(const TebenchRow& row);
/// Mooncake's lines of the threads with a deadline and of the others.
void print_deadline_groups(const TebenchRow& row, const TebenchOptions& options);
nlohmann::ordered_json to_json(const TebenchRow& row);

void add_tebench_command(CLI::App& app, int& exit_code);

}  // namespace braid::tools
