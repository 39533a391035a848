#include "serving/cost/calibration.h"

#include <string>
#include <vector>

#include "base/try.h"
#include "topology/json_reader.h"

namespace braid::serving {
namespace {

constexpr const char* kFormat = "braid-step-time-1";
constexpr double kMostError = 0.10;

struct Row {
  const char* name;
  double StepConstants::*value;
  double measured;
};

// docs/measurements/2026-11-23-H200-step-time.json; a test compares them.
constexpr Row kRows[] = {
    {"matmul_tflops", &StepConstants::matmul_tflops, 699.931},
    {"weight_gbps", &StepConstants::weight_gbps, 4206.83},
    {"matmul_us", &StepConstants::matmul_us, 9.51886},
    {"attention_gbps", &StepConstants::attention_gbps, 4380.88},
    {"attention_us", &StepConstants::attention_us, 10.2543},
    {"prefill_tflops", &StepConstants::prefill_tflops, 612.838},
    {"prefill_us", &StepConstants::prefill_us, 10.4863},
    {"glue_gbps", &StepConstants::glue_gbps, 4195.92},
    {"glue_us", &StepConstants::glue_us, 16.9765},
    {"sequence_us", &StepConstants::sequence_us, 0.787789},
    {"step_us", &StepConstants::step_us, 39.6064},
};
constexpr double kMeasuredError = 0.05048;

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
  root.expect_keys({"format", "gpu", "date", "constants", "held_out_median_relative_error"},
                   {"torch", "command", "notes", "grid", "held_out_seed"});
  const char* const formats[] = {kFormat};
  root["format"].known_name(formats);
  std::vector<const char*> names;
  for (const Row& row : kRows) names.push_back(row.name);
  const topology::JsonNode constants = root["constants"];
  constants.expect_keys(names);
  Calibration calibration;
  for (const Row& row : kRows) {
    const std::string name = row.name;
    const bool is_rate = !name.ends_with("_us");
    calibration.constants.*row.value =
        is_rate ? constants[row.name].number_above_zero() : constants[row.name].number_from_zero();
  }
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
