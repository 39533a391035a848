// `braid tebench`: what is read and written.
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "base/try.h"
#include "tools/tebench.h"

namespace braid::tools {
namespace {

using Operation = Transfer::Operation;
using Urgency = Transfer::Urgency;

Transfer::Request request(const Bench& bench, Operation operation, uint64_t at, uint64_t bytes,
                          Urgency urgency = Urgency::kBulk) {
  return {bench.segment,
          operation,
          bench.local + at,
          bench.target + at,
          bytes,
          urgency,
          std::chrono::microseconds(bench.options.deadline_us)};
}

/// Blocks side by side, as Mooncake's; each thread has its own.
std::vector<Transfer::Request> blocks(const Bench& bench, Operation operation, int thread,
                                      uint64_t block_bytes, uint64_t count) {
  const uint64_t stride =
      std::max(bench.options.max_block_size * bench.options.max_batch_size, block_bytes * count);
  const uint64_t base = stride * static_cast<uint64_t>(thread) % (bench.size_bytes / 2);
  std::vector<Transfer::Request> all;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t at = (base + i * block_bytes) % (bench.size_bytes - block_bytes + 1);
    all.push_back(request(bench, operation, at, block_bytes));
  }
  return all;
}

Status run_row(Bench& bench, uint64_t block_bytes, uint64_t batch, int threads,
               std::vector<TebenchRow>& rows) {
  TebenchRow row;
  row.block_bytes = block_bytes;
  row.batch = batch;
  row.threads = threads;
  std::atomic<uint64_t> turn = 0;
  const auto work = [&](int thread) -> Result<double> {
    const std::string& type = bench.options.op_type;
    const bool is_write = type == "write" || (type == "mix" && turn++ % 2 == 0);
    if (bench.options.check_consistency && bench.options.max_num_threads == 1) {
      TebenchRow checked;
      BRAID_TRY(verify(bench, block_bytes, batch, checked));
      row.verified_bytes += checked.verified_bytes;
    }
    return transfer_once(bench, blocks(bench, is_write ? Operation::kWrite : Operation::kRead,
                                       thread, block_bytes, batch));
  };
  BRAID_TRY(measure(bench, row, work));
  BRAID_TRY(verify(bench, block_bytes, batch, row));
  print_row(row);
  rows.push_back(std::move(row));
  return {};
}

// ---- Patterns ----

TebenchRow row_of(const std::string& what, uint64_t block_bytes) {
  TebenchRow row;
  row.what = what;
  row.block_bytes = block_bytes;
  row.batch = 1;
  return row;
}

/// The KV cache of DeepSeek-R1-W8A8 for 4K tokens: 61 layers of 32 blocks, each 128 KB and 16 KB,
/// no two of them side by side. A transfer is a layer. Source: TENT, 4.2.
Status run_r1(Bench& bench, int threads, std::vector<TebenchRow>& rows) {
  constexpr uint64_t kBlocks = 32, kNope = 128 << 10, kRope = 16 << 10, kGap = 4096;
  constexpr uint64_t kPlace = kNope + kRope + 2 * kGap, kLayer = kBlocks * kPlace;
  TebenchRow row;
  row.what = "r1-w8a8: layers of 32 x (128 KiB + 16 KiB)";
  row.block_bytes = kNope + kRope;
  row.batch = kBlocks;
  row.threads = threads;
  const uint64_t layers = std::max<uint64_t>(1, bench.size_bytes / kLayer);
  if (bench.size_bytes < kLayer)
    return Status::error("a layer needs " + std::to_string(kLayer) + " bytes of memory");
  std::atomic<uint64_t> next = 0;
  const auto operation = bench.options.op_type == "read" ? Operation::kRead : Operation::kWrite;
  BRAID_TRY(measure(bench, row, [&](int) {
    const uint64_t layer = next++ % layers * kLayer;
    std::vector<Transfer::Request> all;
    for (uint64_t block = 0; block < kBlocks; ++block) {
      all.push_back(request(bench, operation, layer + block * kPlace, kNope));
      all.push_back(request(bench, operation, layer + block * kPlace + kNope + kGap, kRope));
    }
    return transfer_once(bench, all);
  }));
  BRAID_TRY(verify(bench, kNope, kBlocks, row));
  print_row(row);
  rows.push_back(std::move(row));
  return {};
}

/// New weights for an inference engine: buckets of 64 MB, one after the other.
/// Source: TENT, 4.3 (Checkpoint Engine).
Status run_weights(Bench& bench, std::vector<TebenchRow>& rows) {
  TebenchRow row;
  row.what = "weights: buckets of 64 MiB";
  row.block_bytes = std::min<uint64_t>(64 << 20, bench.size_bytes);
  row.batch = 1;
  const uint64_t buckets = bench.size_bytes / row.block_bytes;
  std::atomic<uint64_t> next = 0;
  BRAID_TRY(measure(bench, row, [&](int) {
    return transfer_once(bench, {request(bench, Operation::kRead,
                                         next++ % buckets * row.block_bytes, row.block_bytes)});
  }));
  BRAID_TRY(verify(bench, row.block_bytes, 1, row));
  print_row(row);
  rows.push_back(std::move(row));
  return {};
}

/// Urgent reads of 4 KB: alone, and beside bulk writes of 64 MB; and the bulk alone.
Status run_mixed(Bench& bench, std::vector<TebenchRow>& rows) {
  constexpr uint64_t kSmall = 4096;
  const uint64_t large = std::min<uint64_t>(64 << 20, bench.size_bytes / 2);
  const auto small = [&](int) {
    return transfer_once(bench, {request(bench, Operation::kRead, bench.size_bytes - kSmall, kSmall,
                                         Urgency::kUrgent)});
  };
  const auto bulk = [&](int) {
    return transfer_once(bench, {request(bench, Operation::kWrite, 0, large)});
  };
  TebenchRow alone = row_of("urgent reads alone", kSmall);
  BRAID_TRY(measure(bench, alone, small));
  TebenchRow bulk_alone = row_of("bulk writes alone", large);
  BRAID_TRY(measure(bench, bulk_alone, bulk));
  TebenchRow beside = row_of("urgent reads beside bulk", kSmall);
  TebenchRow bulk_beside = row_of("bulk writes beside urgent", large);
  Status of_bulk;
  std::thread other([&] { of_bulk = measure(bench, bulk_beside, bulk); });
  const Status of_small = measure(bench, beside, small);
  other.join();
  BRAID_TRY(of_small);
  BRAID_TRY(of_bulk);
  BRAID_TRY(verify(bench, large, 1, bulk_beside));
  for (TebenchRow* row : {&alone, &bulk_alone, &beside, &bulk_beside}) {
    print_row(*row);
    rows.push_back(std::move(*row));
  }
  return {};
}

/// Several engines write to one target at once, each into its own part.
Status run_incast(Bench& bench, const Transfer::Options& options, std::vector<TebenchRow>& rows) {
  const auto count = static_cast<size_t>(bench.options.incast);
  const uint64_t part = bench.size_bytes / count / 4096 * 4096;
  TebenchRow row;
  row.what = "incast: engines that write to one target";
  row.block_bytes = std::min<uint64_t>(1 << 20, part);
  row.batch = 1;
  row.threads = bench.options.incast;
  std::vector<Transfer> engines;
  std::vector<Bench> benches(count, bench);
  engines.reserve(count);
  Transfer::Options nameless = options;
  nameless.name.clear();
  nameless.listen.clear();
  for (size_t i = 0; i < count; ++i) {
    BRAID_LET(engine, Transfer::open(nameless));
    engines.push_back(std::move(engine));
    benches[i].engine = &engines.back();
    BRAID_LET(segment,
              engines.back().open_segment(bench.options.target_seg_name, std::chrono::seconds(30)));
    benches[i].segment = segment;
    BRAID_TRY(engines.back().register_memory(bench.local + i * part, part, {}).status());
  }
  BRAID_TRY(measure(bench, row, [&](int thread) {
    Bench& own = benches[static_cast<size_t>(thread)];
    return transfer_once(own, {request(own, Operation::kWrite, static_cast<uint64_t>(thread) * part,
                                       row.block_bytes)});
  }));
  BRAID_TRY(verify(bench, row.block_bytes, count, row));
  print_row(row);
  rows.push_back(std::move(row));
  return {};
}

}  // namespace

Status run_sweep(Bench& bench, std::vector<TebenchRow>& rows) {
  const TebenchOptions& options = bench.options;
  for (int threads = options.start_num_threads; threads <= options.max_num_threads; threads *= 2)
    for (uint64_t block = options.start_block_size; block <= options.max_block_size; block *= 2)
      for (uint64_t batch = options.start_batch_size; batch <= options.max_batch_size; batch *= 2) {
        if (block * batch * static_cast<uint64_t>(threads) > bench.size_bytes / 2) continue;
        BRAID_TRY(run_row(bench, block, batch, threads, rows));
      }
  return {};
}

Status run_pattern(Bench& bench, const Transfer::Options& engine, std::vector<TebenchRow>& rows) {
  if (bench.options.pattern == "weights") return run_weights(bench, rows);
  if (bench.options.pattern == "mixed") return run_mixed(bench, rows);
  if (bench.options.pattern == "incast") return run_incast(bench, engine, rows);
  for (int threads = bench.options.start_num_threads; threads <= bench.options.max_num_threads;
       threads *= 2)
    BRAID_TRY(run_r1(bench, threads, rows));
  return {};
}

}  // namespace braid::tools
