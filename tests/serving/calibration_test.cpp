// Files of step times: what is read of them, and what is refused because figures of it would mean
// nothing.
#include "serving/cost/calibration.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

namespace braid::serving {
namespace {

using Json = nlohmann::ordered_json;

Json good() {
  return Json::parse(R"({"format": "braid-step-time-1", "gpu": "Test GPU", "date": "2026-01-02",
    "constants": {"matmul_tflops": 600, "weight_gbps": 4000, "matmul_us": 3, "attention_gbps": 3500,
      "attention_us": 5, "prefill_tflops": 400, "prefill_us": 10, "glue_gbps": 2500, "glue_us": 15,
      "sequence_us": 1, "step_us": 50},
    "held_out_median_relative_error": {"all": 0.04}, "held_out_seed": 1,
    "grid": [{"section": "sampling", "sequences": 1, "us": 51}]})");
}

Result<Calibration> read(const std::function<void(Json&)>& change) {
  Json document = good();
  change(document);
  const auto path = std::filesystem::path(::testing::TempDir()) /
                    ("calibration_" + std::to_string(getpid()) + ".json");
  std::ofstream(path) << document;
  auto calibration = read_calibration(path.string());
  std::filesystem::remove(path);
  return calibration;
}

void expect_refused(const std::string& what, const std::function<void(Json&)>& change) {
  const std::string message = read(change).status().message();
  EXPECT_NE(message.find(".json: " + what), std::string::npos) << what << ": " << message;
}

TEST(Calibration, IsReadFromAFile) {
  const auto calibration = read([](Json&) {});
  ASSERT_TRUE(calibration.ok()) << calibration.status().message();
  EXPECT_EQ(calibration.value().constants.glue_gbps, 2500);
  EXPECT_EQ(calibration.value().held_out_error, 0.04);
}

// Steps that take no time, and those that overflow virtual time, gave perfect figures.
TEST(Calibration, AConstantThatNoGpuHasIsNamed) {
  for (const auto& [name, value] :
       {std::pair("matmul_tflops", 1e-300), std::pair("matmul_tflops", 1e300),
        std::pair("prefill_tflops", 0.0), std::pair("weight_gbps", 1e-9),
        std::pair("attention_gbps", 1e12), std::pair("glue_gbps", -5.0),
        std::pair("step_us", 1e300), std::pair("step_us", 1e13), std::pair("sequence_us", -1.0)})
    expect_refused(std::string("constants.") + name + ": ",
                   [name = name, value = value](Json& json) { json["constants"][name] = value; });
  expect_refused("constants.step_us: is not between 0 and 1000000. Measure again",
                 [](Json& json) { json["constants"]["step_us"] = 1e13; });
}

TEST(Calibration, ErrorsWithoutTheirGridAreRefused) {
  for (const char* key : {"grid", "held_out_seed"})
    expect_refused(std::string(key) + ": missing", [key](Json& json) { json.erase(key); });
  expect_refused("grid: expected the points", [](Json& json) { json["grid"] = Json::array(); });
  expect_refused("held_out_seed: expected", [](Json& json) { json["held_out_seed"] = "one"; });
}

}  // namespace
}  // namespace braid::serving
