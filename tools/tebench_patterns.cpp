// `braid tebench`: what is read and written.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "base/try.h"
#include "tools/tebench.h"
#include "tools/transfer_options.h"

namespace braid::tools {
namespace {

using Operation = Transfer::Operation;
using Urgency = Transfer::Urgency;

Urgency usual_urgency(const Bench& bench) { return urgency_of(bench.options.tent_intent_type); }

/// Of the first threads, or of all.
uint64_t deadline_us(const TebenchOptions& options, int thread) {
  const int tight = options.deadline_tight_threads;
  return tight < 0 || thread < tight ? options.deadline_us : 0;
}

Transfer::Request request(const Bench& bench, Operation operation, uint64_t at, uint64_t bytes,
                          Urgency urgency, int thread = 0) {
  return {bench.segment,
          operation,
          bench.local + at,
          bench.target + at,
          bytes,
          urgency,
          std::chrono::microseconds(deadline_us(bench.options, thread))};
}

/// Blocks side by side, as Mooncake's; each thread has a part of its own.
Requests blocks(const Bench& bench, Operation operation, int thread, int threads,
                uint64_t block_bytes, uint64_t count) {
  const auto parts = static_cast<uint64_t>(threads);
  const uint64_t part = std::max(bench.size_bytes / parts / 4096 * 4096, block_bytes * count);
  Requests all;
  for (uint64_t i = 0; i < count; ++i)
    all.push_back(request(bench, operation, static_cast<uint64_t>(thread) * part + i * block_bytes,
                          block_bytes, usual_urgency(bench), thread));
  return all;
}

constexpr uint64_t kSeed = 0;

/// What --op_type write_seed has left. A target of --pair is new: nobody has written there yet.
Status seed(Bench& bench) {
  constexpr uint64_t kPart = 64 << 20;
  for (uint64_t at = 0; at < bench.size_bytes; at += kPart) {
    Requests part = {request(bench, Operation::kWrite, at, std::min(kPart, bench.size_bytes - at),
                             Urgency::kBulk)};
    part.front().limit = {};
    Turn turn;
    BRAID_TRY(fill(bench, part, kSeed, turn));
    BRAID_TRY(transfer_once(bench, part, turn));
  }
  return {};
}

/// Whether what was read is what --op_type write_seed writes.
Status compare_with_seed(const Bench& bench, const Requests& reads, Turn& turn) {
  const Status same = compare(bench, reads, kSeed, turn);
  if (same.ok()) return same;
  return Status::error(same.message(),
                       "read_verify expects what --op_type write_seed has left: run that first, "
                       "with the same sizes, and write nothing there in between");
}

/// One turn of --op_type.
Status operate(Bench& bench, Requests reads, Turn& turn) {
  const std::string& type = bench.options.op_type;
  if (bench.options.check_consistency) return write_and_read_back(bench, std::move(reads), turn);
  Requests writes = reads;
  for (Transfer::Request& each : writes) each.operation = Operation::kWrite;
  if (type == "write_seed") BRAID_TRY(fill(bench, writes, kSeed, turn));
  if (type != "read" && type != "read_verify") BRAID_TRY(transfer_once(bench, writes, turn));
  if (type == "write" || type == "write_seed") return {};
  const uint64_t late_before = turn.moved.late;
  BRAID_TRY(transfer_once(bench, reads, turn));
  if (type != "read_verify" || turn.moved.late != late_before) return {};
  return compare_with_seed(bench, reads, turn);
}

Status run_row(Bench& bench, uint64_t block_bytes, uint64_t batch, int threads,
               const std::vector<TebenchClass>& classes, std::vector<TebenchRow>& rows) {
  TebenchRow row;
  row.block_bytes = block_bytes;
  row.batch = batch;
  row.threads = threads;
  BRAID_TRY(measure(bench, row, [&](int thread, Turn& turn) {
    return operate(bench, blocks(bench, Operation::kRead, thread, threads, block_bytes, batch),
                   turn);
  }));
  // What another process has left there stays, if this one only reads and compares.
  const std::string& type = bench.options.op_type;
  if (type != "write_seed" && type != "read_verify")
    BRAID_TRY(verify(bench, blocks(bench, Operation::kRead, 0, threads, block_bytes, batch), row));
  print_row(row);
  print_deadline_groups(row, bench.options);
  rows.push_back(row);
  size_t first = 0;
  for (const TebenchClass& each : classes) {
    TebenchRow part = of_threads(row, first, static_cast<size_t>(each.threads));
    first += static_cast<size_t>(each.threads);
    part.what = each.name;
    part.slo_us = each.slo_us;
    print_row(part);
    rows.push_back(std::move(part));
  }
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

Status too_small(const std::string& pattern, uint64_t least_bytes) {
  return Status::error(
      "the pattern " + pattern + " needs " + std::to_string(least_bytes) + " bytes of memory",
      "Set --total_buffer_size to that or more on both sides");
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
  if (bench.size_bytes < kLayer) return too_small("r1-w8a8", kLayer);
  std::atomic<uint64_t> next = 0;
  const auto operation = bench.options.op_type == "read" ? Operation::kRead : Operation::kWrite;
  const auto layer = [&](uint64_t number, int thread) {
    const uint64_t first = number % layers * kLayer;
    Requests all;
    for (uint64_t block = 0; block < kBlocks; ++block) {
      const uint64_t at = first + block * kPlace;
      all.push_back(request(bench, operation, at, kNope, usual_urgency(bench), thread));
      all.push_back(
          request(bench, operation, at + kNope + kGap, kRope, usual_urgency(bench), thread));
    }
    return all;
  };
  BRAID_TRY(measure(bench, row, [&](int thread, Turn& turn) {
    return transfer_once(bench, layer(next++, thread), turn);
  }));
  BRAID_TRY(verify(bench, layer(0, 0), row));
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
  const auto bucket = [&](uint64_t number) {
    return Requests{request(bench, Operation::kRead, number % buckets * row.block_bytes,
                            row.block_bytes, usual_urgency(bench))};
  };
  BRAID_TRY(measure(bench, row,
                    [&](int, Turn& turn) { return transfer_once(bench, bucket(next++), turn); }));
  BRAID_TRY(verify(bench, bucket(0), row));
  print_row(row);
  rows.push_back(std::move(row));
  return {};
}

/// Urgent reads of 4 KB: alone, and beside bulk writes of 64 MB; and the bulk alone.
Status run_mixed(Bench& bench, std::vector<TebenchRow>& rows) {
  constexpr uint64_t kSmall = 4096;
  if (bench.size_bytes < 2 * kSmall) return too_small("mixed", 2 * kSmall);
  const uint64_t large = std::min<uint64_t>(64 << 20, bench.size_bytes / 2);
  const Requests reads = {
      request(bench, Operation::kRead, bench.size_bytes - kSmall, kSmall, Urgency::kUrgent)};
  const Requests writes = {request(bench, Operation::kWrite, 0, large, Urgency::kBulk)};
  const auto small = [&](int, Turn& turn) { return transfer_once(bench, reads, turn); };
  const auto bulk = [&](int, Turn& turn) { return transfer_once(bench, writes, turn); };
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
  beside.shares_cpu = bulk_beside.shares_cpu = true;
  for (TebenchRow* row : {&alone, &beside}) BRAID_TRY(verify(bench, reads, *row));
  for (TebenchRow* row : {&bulk_alone, &bulk_beside}) BRAID_TRY(verify(bench, writes, *row));
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
  if (part == 0) return too_small("incast", 4096 * count);
  TebenchRow row;
  row.what = "incast: engines that write to one target";
  row.block_bytes = std::min<uint64_t>(1 << 20, part);
  row.batch = 1;
  row.threads = bench.options.incast;
  std::vector<Transfer> engines;
  std::vector<Bench> benches(count, bench);
  engines.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    BRAID_LET(engine, Transfer::open(beside(options)));
    engines.push_back(std::move(engine));
    benches[i].engine = &engines.back();
    BRAID_LET(segment,
              engines.back().open_segment(bench.options.target_seg_name, std::chrono::seconds(30)));
    benches[i].segment = segment;
    BRAID_TRY(engines.back().register_memory(bench.local + i * part, part, {}).status());
  }
  const auto write = [&](size_t thread) {
    return Requests{request(benches[thread], Operation::kWrite, thread * part, row.block_bytes,
                            usual_urgency(bench))};
  };
  BRAID_TRY(measure(bench, row, [&](int thread, Turn& turn) {
    const auto own = static_cast<size_t>(thread);
    return transfer_once(benches[own], write(own), turn);
  }));
  for (size_t i = 0; i < count; ++i) BRAID_TRY(verify(benches[i], write(i), row));
  print_row(row);
  rows.push_back(std::move(row));
  return {};
}

}  // namespace

Status run_sweep(Bench& bench, std::vector<TebenchRow>& rows) {
  const TebenchOptions& options = bench.options;
  BRAID_LET(classes, parse_classes(options));
  if (options.op_type == "read_verify" && options.has_own_target) BRAID_TRY(seed(bench));
  // Without it, doubling may overflow.
  const uint64_t largest = std::min(options.max_block_size, bench.size_bytes);
  for (int threads = options.start_num_threads; threads <= options.max_num_threads; threads *= 2)
    for (uint64_t block = options.start_block_size; block <= largest; block *= 2)
      for (uint64_t batch = options.start_batch_size; batch <= options.max_batch_size; batch *= 2) {
        if (!bench.has_room(block, batch, threads)) break;
        BRAID_TRY(run_row(bench, block, batch, threads, classes, rows));
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
