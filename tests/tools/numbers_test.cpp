// What a word that is no number is answered with, by every option that takes numbers.
#include <gtest/gtest.h>

#include <regex>

#include "tests/tools/braid_run.h"

namespace braid::test {
namespace {

ChildResult braid_with(Words command, const Words& options) {
  command.insert(command.begin(), {"timeout", "60", BRAID_COMMAND});
  command.insert(command.end(), options.begin(), options.end());
  return run_child(command);
}

const std::vector<Words> kCommands = {{"bench"},
                                      {"compare"},
                                      {"fabric", "bench"},
                                      {"fabric", "demo"},
                                      {"rails"},
                                      {"segments"},
                                      {"serve"},
                                      {"simulate", "serving"},
                                      {"tebench"},
                                      {"simulate", "transfer"},
                                      {"tune"}};

/// As --help names them: "--turns INT:1 to 1000", "--memory UINT:UINT [b, kb(=1024b), ...]".
std::vector<std::string> options_for_numbers(const Words& command) {
  const std::string help = braid_with(command, {"--help"}).output;
  static const std::regex option("(--[a-z_-]+) (INT|UINT|FLOAT|N)\\b");
  std::vector<std::string> names;
  for (std::sregex_iterator i(help.begin(), help.end(), option), end; i != end; ++i)
    names.push_back((*i)[1]);
  return names;
}

TEST(Numbers, EachOptionNamesItselfTheWordAndWhatItExpects) {
  size_t options = 0;
  for (const Words& command : kCommands)
    for (const std::string& option : options_for_numbers(command)) {
      ++options;
      const ChildResult child = braid_with(command, {option, "1x"});
      expect_refusal(child, 1, {option, "'1x'", "is not "});
      EXPECT_LT(child.errors.size(), 200u) << "nobody reads that: " << child.errors;
    }
  EXPECT_GT(options, 35u) << "--help is written in another way";
}

TEST(Numbers, ARangeIsSaidInWords) {
  expect_refusal(braid_with({"fabric", "bench"}, {"--turns", "1x"}), 1,
                 {"--turns: '1x' is not a whole number from 1 to 1000."});
  expect_refusal(braid_with({"fabric", "bench"}, {"--turns", "1001"}), 1,
                 {"--turns: '1001' is not a whole number from 1 to 1000."});
  for (const char* load : {"abc", "nan", "101"})
    expect_refusal(braid_with({"simulate", "serving"}, {"--load", load}), 1,
                   {std::string("'") + load + "' is not a number from 0.01 to 100."});
}

TEST(Numbers, ASizeIsExplained) {
  expect_refusal(braid_with({"serve"}, {"--memory", "much"}), 1,
                 {"--memory: 'much' is not a size", "64K"});
}

TEST(Numbers, WholeNumbersAreWholeAndFit) {
  expect_refusal(braid_with({"serve"}, {"--gpu", "0.5"}), 1,
                 {"--gpu: '0.5' is not a whole number"});
  expect_refusal(braid_with({"tebench"}, {"--max_num_threads", "99999999999"}), 1,
                 {"--max_num_threads: '99999999999' is out of range"});
  expect_refusal(braid_with({"bench"}, {"--seed", "-1"}), 1,
                 {"--seed: '-1' is not a whole number"});
  expect_refusal(braid_with({"waits", "me"}, {}), 1, {"pid: 'me' is not a number above 0"});
}

TEST(Numbers, AnUnknownOptionIsNamedAlone) {
  expect_refusal(braid_with({"tebench"}, {"--threads", "abc"}), 1,
                 {"'--threads' is no option or argument of this command. See braid tebench"});
  expect_refusal(braid_with({"fabric", "demo"}, {"--second", "1"}), 1,
                 {"'--second' is no option or argument", "See braid fabric demo --help"});
}

}  // namespace
}  // namespace braid::test
