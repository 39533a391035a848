// The clients in clients/ as programs, natively and under `braid run`, on the emulated server.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/child.h"

namespace braid::test {

using Words = std::vector<std::string>;

inline const std::string kCopies = BRAID_TEST_CLIENTS "/client_copies";
inline const std::string kCopiesLinked = BRAID_TEST_CLIENTS "/client_copies_linked";
inline const std::string kScenarios = BRAID_TEST_CLIENTS "/client_scenarios";

inline constexpr uint64_t kScenarioBytes = (uint64_t{6} << 20) + 77;

inline Words joined(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

inline ChildResult natively(const Words& program, Environment environment = {}) {
  environment["LD_LIBRARY_PATH"] = BRAID_EMULATOR_FOLDER;
  environment["BRAID_SERVER"] = BRAID_PROFILES "/h20x8.json";
  return run_child(program, environment);
}

/// As users run it, but for the statistics.
inline ChildResult by_default(const Words& program, const Words& options = {},
                              const Environment& environment = {}) {
  const Words run{BRAID_COMMAND, "run", "--server", "h20x8", "--stats", "json"};
  return run_child(joined(joined(joined(run, options), {"--"}), program), environment);
}

/// As waiting() says, so that a test knows which copies are carried.
inline ChildResult with_braid(const Words& program, const Words& options = {},
                              const Environment& environment = {}) {
  return by_default(program, options, waiting(environment));
}

// The one line of statistics of a program that ended well and said nothing else.
inline nlohmann::json only_statistics(const ChildResult& child) {
  EXPECT_EQ(child.exit_code, 0) << child.errors;
  EXPECT_EQ(child.other_errors(), "");
  const auto all = child.statistics();
  EXPECT_EQ(all.size(), 1u) << child.errors;
  return all.size() == 1 ? all[0] : nlohmann::json{{"entry_points", {}}, {"paths", {}}};
}

}  // namespace braid::test
