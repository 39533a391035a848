#include "serving/cost/copy_times.h"

#include <sstream>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/median.h"
#include "base/try.h"
#include "topology/json_reader.h"

// docs/measurements/2026-11-28-2xH200-copies.jsonl, as it lies there.
extern "C" const char braid_h200_copies[];

namespace braid::serving {
namespace {

using topology::JsonErrors;
using topology::JsonNode;

double median_of(const JsonNode& turns) {
  std::vector<double> values;
  for (const JsonNode& turn : turns.items(1, "what each turn took"))
    values.push_back(turn.number_from_zero());
  return median(std::move(values));
}

std::optional<double> median_if_there(const JsonNode& line, const char* key) {
  const auto turns = line.find(key);
  return turns ? std::optional(median_of(*turns)) : std::nullopt;
}

void check_verified(const JsonNode& line) {
  const JsonNode verified = line["verified"];
  if (!verified.truth()) verified.refuse("says that bytes were wrong", "Measure again");
}

SegmentCopies segments_of(const JsonNode& line) {
  check_verified(line);
  const char* const ways[] = {"down", "up", "both"};
  const std::string moves = line["moves"].known_name(ways);
  return {.segment_bytes = static_cast<uint64_t>(line["segment_bytes"].number_above_zero()),
          .segments = static_cast<uint64_t>(line["segments"].number_above_zero()),
          .way = moves == "down" ? Way::kDown
                 : moves == "up" ? Way::kUp
                                 : Way::kBoth,
          .one_by_one_gbps = median_of(line["one_by_one_gbps"]),
          .batch_gbps = median_of(line["native_gbps"]),
          .braid_gbps = median_if_there(line, "braid_gbps"),
          .call_us = median_if_there(line, "call_us"),
          .transfer_us = median_if_there(line, "transfer_us")};
}

void read_methods(const JsonNode& line, CopyTimes& times) {
  check_verified(line);
  for (const char* name : {"naive", "ms", "ms_mk", "duplex", "braid"})
    if (const auto method = line.find(name))
      times.methods.push_back({name, median_of((*method)["down_gbps"]),
                               median_of((*method)["up_gbps"]),
                               1e3 * median_of((*method)["both_s"])});
}

// Lines of other kinds are for other readers.
Result<CopyTimes> parse(const std::string& text, const std::string& path) {
  CopyTimes times;
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    const std::string place = path + ":" + std::to_string(number);
    BRAID_LET(document, topology::parse_json(line, place));
    JsonErrors errors(place);
    const JsonNode root(&document, "", &errors);
    const std::string what = root["what"].text();
    if (what == "segment") times.segments.push_back(segments_of(root));
    if (what == "table_1") read_methods(root, times);
    if (!errors.ok()) return errors.first();
  }
  if (times.segments.empty() || times.methods.empty())
    return Status::error(path + " has no copies of segments, or no methods of table 1",
                         "Give all that bench/kv's `rotation` has printed");
  return times;
}

}  // namespace

CopyTimes h200_copies() {
  CopyTimes times =
      parse(braid_h200_copies, "docs/measurements/2026-11-28-2xH200-copies.jsonl").value();
  times.source =
      "measured on 2 x NVIDIA H200, 2026-11-28 (docs/measurements/2026-11-28-2xH200-copies.jsonl)";
  return times;
}

Result<CopyTimes> read_copy_times(const std::string& path) {
  BRAID_LET(text, topology::read_text(path));
  BRAID_LET(times, parse(text, path));
  times.source = "measured by bench/kv's rotation (" + path + ")";
  return times;
}

}  // namespace braid::serving
