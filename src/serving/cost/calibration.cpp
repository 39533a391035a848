#include "serving/cost/calibration.h"

#include <limits>
#include <string>
#include <vector>

#include "base/try.h"
#include "topology/json_reader.h"

namespace braid::serving {
namespace {

constexpr const char* kFormat = "braid-step-time-1";
constexpr double kMostError = 0.10;

// What a constant of a GPU can be. Beyond it a step takes no time, or more than virtual time can
// hold, and every figure would be nonsense.
struct Range {
  int least, most;
};
constexpr Range kTflops = {1, 100'000};
constexpr Range kGbps = {1, 1'000'000};
constexpr Range kUs = {0, 1'000'000};

struct Row {
  const char* name;
  double StepConstants::*value;
  double measured;
  Range range;
};

// docs/measurements/2026-11-23-H200-step-time.json; a test compares them.
constexpr Row kRows[] = {
    {"matmul_tflops", &StepConstants::matmul_tflops, 699.931, kTflops},
    {"weight_gbps", &StepConstants::weight_gbps, 4206.83, kGbps},
    {"matmul_us", &StepConstants::matmul_us, 9.51886, kUs},
    {"attention_gbps", &StepConstants::attention_gbps, 4380.88, kGbps},
    {"attention_us", &StepConstants::attention_us, 10.2543, kUs},
    {"prefill_tflops", &StepConstants::prefill_tflops, 612.838, kTflops},
    {"prefill_us", &StepConstants::prefill_us, 10.4863, kUs},
    {"glue_gbps", &StepConstants::glue_gbps, 4195.92, kGbps},
    {"glue_us", &StepConstants::glue_us, 16.9765, kUs},
    {"sequence_us", &StepConstants::sequence_us, 0.787789, kUs},
    {"step_us", &StepConstants::step_us, 39.6064, kUs},
};
constexpr double kMeasuredError = 0.05048;

double read_constant(const topology::JsonNode& node, const Range& range) {
  const double value = node.number_from_zero();
  if (value < range.least || value > range.most)
    node.refuse(
        "is not between " + std::to_string(range.least) + " and " + std::to_string(range.most),
        "Measure again by bench/serving/calibrate.py: no GPU is like that");
  return value;
}

// Errors without the grid that they are of, and the seed that drew the half held out, could be
// checked by nobody. Only bench/serving can: here they are the file's word.
void check_grid(const topology::JsonNode& root) {
  root["grid"].items(1, "the points that were measured");
  root["held_out_seed"].whole_number(0, std::numeric_limits<int>::max());
}

}  // namespace

Calibration h200_calibration() {
  Calibration calibration;
  for (const Row& row : kRows) calibration.constants.*row.value = row.measured;
  calibration.source =
      "measured on NVIDIA H200, 2026-11-23 (docs/measurements/2026-11-23-H200-step-time.md)";
  calibration.held_out_error = kMeasuredError;
  return calibration;
}

Result<Calibration> read_calibration(const std::string& path) {
  BRAID_LET(text, topology::read_text(path));
  BRAID_LET(document, topology::parse_json(text, path));
  topology::JsonErrors errors(path);
  const topology::JsonNode root(&document, "", &errors);
  root.expect_keys({"format", "gpu", "date", "constants", "held_out_median_relative_error", "grid",
                    "held_out_seed"},
                   {"torch", "command", "notes"});
  const char* const formats[] = {kFormat};
  root["format"].known_name(formats);
  std::vector<const char*> names;
  for (const Row& row : kRows) names.push_back(row.name);
  const topology::JsonNode constants = root["constants"];
  constants.expect_keys(names);
  Calibration calibration;
  for (const Row& row : kRows)
    calibration.constants.*row.value = read_constant(constants[row.name], row.range);
  check_grid(root);
  calibration.held_out_error = root["held_out_median_relative_error"]["all"].number_from_zero();
  calibration.source = "measured on " + root["gpu"].text() + ", " + root["date"].text() +
                       ", by bench/serving/calibrate.py";
  if (errors.ok() && calibration.held_out_error > kMostError)
    root["held_out_median_relative_error"]["all"].refuse(
        "is more than " + std::to_string(kMostError),
        "Measure again: figures of it would mean little");
  if (!errors.ok()) return errors.first();
  return calibration;
}

}  // namespace braid::serving
