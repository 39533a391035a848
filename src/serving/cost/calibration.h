// The constants of the step-time model, from files that bench/serving/calibrate.py has written on a
// GPU.
#pragma once

#include <string>

#include "base/status.h"
#include "serving/cost/step_time.h"

namespace braid::serving {

struct Calibration {
  StepConstants constants;
  std::string source;         ///< for people: the measurement, its place and date
  double held_out_error = 0;  ///< median relative error over the half of the grid held out
};

/// The calibration of an H200, as recorded in docs/measurements.
Calibration h200_calibration();

/// Reads a file. Errors name the file and the key. A constant that no GPU has is refused, and so
/// are a file without the grid that was measured, and a held-out error of more than 10 %. The error
/// is the file's word: only bench/serving can compute it.
Result<Calibration> read_calibration(const std::string& path);

}  // namespace braid::serving
