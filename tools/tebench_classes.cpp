// `braid tebench`: classes of threads, as Mooncake's flags name them. A class has an objective for
// the time of a transfer, and may have blocks, an urgency and a deadline of its own.
#include <fmt/core.h>

#include <sstream>

#include "base/try.h"
#include "tools/tebench.h"

namespace braid::tools {
namespace {

using Json = nlohmann::json;

Status wrong(const std::string& what) {
  return Status::error("the classes of tebench: " + what,
                       "Write them as Mooncake's tebench expects them");
}

/// name:threads:slo_us:weight[:isolated_gbps]
Result<TebenchClass> parse_class(const std::string& text) {
  std::istringstream fields(text);
  TebenchClass one;
  std::string threads, slo_us;
  std::getline(fields, one.name, ':');
  std::getline(fields, threads, ':');
  std::getline(fields, slo_us, ':');
  one.threads = std::atoi(threads.c_str());
  one.slo_us = std::atof(slo_us.c_str());
  if (one.name.empty() || one.threads <= 0 || one.slo_us <= 0)
    return wrong("'" + text + "' is not name:threads:slo_us:weight");
  return one;
}

Result<TebenchClass> parse_class(const Json& json, bool has_blocks) {
  TebenchClass one;
  one.name = json.at("name").get<std::string>();
  one.threads = json.at("threads").get<int>();
  one.slo_us = json.at("slo_us").get<double>();
  if (has_blocks) {
    one.block_bytes = json.at("block_size").get<uint64_t>();
    one.batch = json.at("batch_size").get<uint64_t>();
    one.urgency = urgency_of(json.at("intent_type").get<std::string>());
    one.deadline_us = json.value("deadline_us", uint64_t{0});
  }
  if (one.threads <= 0 || (has_blocks && (one.block_bytes == 0 || one.batch == 0)))
    return wrong("'" + one.name + "' has no threads, or no blocks");
  return one;
}

Result<std::vector<TebenchClass>> parse_json(const std::string& text, bool has_blocks) {
  std::vector<TebenchClass> all;
  try {
    const Json json = Json::parse(text);
    if (!json.is_array() || json.empty()) return wrong("they are no array of objects");
    for (const Json& each : json) {
      BRAID_LET(one, parse_class(each, has_blocks));
      all.push_back(one);
    }
  } catch (const Json::exception& error) {
    return wrong(error.what());
  }
  return all;
}

}  // namespace

Transfer::Urgency urgency_of(const std::string& intent_type) {
  return intent_type == "foreground_get" ? Transfer::Urgency::kUrgent : Transfer::Urgency::kBulk;
}

Result<std::vector<TebenchClass>> parse_classes(const TebenchOptions& options) {
  if (!options.workload_classes_json.empty())
    return parse_json(options.workload_classes_json, true);
  if (!options.qos_classes_json.empty()) return parse_json(options.qos_classes_json, false);
  std::vector<TebenchClass> all;
  std::istringstream list(options.qos_classes);
  for (std::string word; std::getline(list, word, ',');) {
    BRAID_LET(one, parse_class(word));
    all.push_back(one);
  }
  return all;
}

Status run_classes(Bench& bench, std::vector<TebenchRow>& rows) {
  BRAID_LET(classes, parse_classes(bench.options));
  std::vector<const TebenchClass*> of_thread;
  for (const TebenchClass& each : classes)
    of_thread.insert(of_thread.end(), static_cast<size_t>(each.threads), &each);
  const uint64_t place_bytes = bench.size_bytes / of_thread.size() / 4096 * 4096;
  for (const TebenchClass& each : classes)
    if (each.block_bytes > place_bytes / each.batch)
      return wrong(fmt::format("a batch of '{}' does not fit into {} bytes, a thread's part",
                               each.name, place_bytes));
  const auto operation =
      bench.options.op_type == "write" ? Transfer::Operation::kWrite : Transfer::Operation::kRead;
  const auto requests = [&](size_t thread) {
    const TebenchClass& own = *of_thread[thread];
    Requests all;
    for (uint64_t i = 0; i < own.batch; ++i) {
      const uint64_t at = thread * place_bytes + i * own.block_bytes;
      all.push_back({bench.segment, operation, bench.local + at, bench.target + at, own.block_bytes,
                     own.urgency, std::chrono::microseconds(own.deadline_us)});
    }
    return all;
  };
  TebenchRow together;
  together.threads = static_cast<int>(of_thread.size());
  BRAID_TRY(measure(bench, together, [&](int thread, Turn& turn) {
    return transfer_once(bench, requests(static_cast<size_t>(thread)), turn);
  }));
  size_t first = 0;
  for (const TebenchClass& each : classes) {
    TebenchRow row = of_threads(together, first, static_cast<size_t>(each.threads));
    row.what = each.name;
    row.block_bytes = each.block_bytes;
    row.batch = each.batch;
    row.slo_us = each.slo_us;
    BRAID_TRY(verify(bench, requests(first), row));
    first += static_cast<size_t>(each.threads);
    print_row(row);
    rows.push_back(std::move(row));
  }
  return {};
}

}  // namespace braid::tools
