// What tests of the command share: `braid run` and what it says when it refuses.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/child.h"

namespace braid::test {

using Words = std::vector<std::string>;

inline const Words kEmulated = {"--server", "h20x8"};
inline constexpr int kRunFailed = 125;

inline ChildResult braid_run(const Words& options, const Words& program,
                             const Environment& environment = {}) {
  Words words{BRAID_COMMAND, "run"};
  words.insert(words.end(), options.begin(), options.end());
  words.push_back("--");
  words.insert(words.end(), program.begin(), program.end());
  return run_child(words, environment);
}

inline Words emulated_with(const Words& options) {
  Words all = kEmulated;
  all.insert(all.end(), options.begin(), options.end());
  return all;
}

inline void expect_refusal(const ChildResult& child, int exit_code, const Words& parts) {
  EXPECT_EQ(child.exit_code, exit_code) << child.errors;
  EXPECT_TRUE(child.errors.starts_with("braid: ")) << child.errors;
  for (const std::string& part : parts)
    EXPECT_NE(child.errors.find(part), std::string::npos) << part << " in: " << child.errors;
}

}  // namespace braid::test
