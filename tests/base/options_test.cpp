#include "base/options.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>

namespace braid {
namespace {

Result<Options> read(const std::map<std::string, std::string>& environment) {
  return read_options([&](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

TEST(Options, DefaultsWhenNothingIsSet) {
  const Options options = read({}).value();
  EXPECT_TRUE(options.relays.allows(5));
  EXPECT_EQ(options.stats, StatsFormat::kNone);
  EXPECT_EQ(options.threshold_bytes, 0u) << "the cost model's";
  EXPECT_EQ(options.costs, "") << "the server's own file";
  EXPECT_TRUE(options.yields);
}

TEST(Options, ReadsEveryRow) {
  const Options options = read({{"BRAID_RELAYS", "1,3"},
                                {"BRAID_STATS", "json"},
                                {"BRAID_STATS_FILE", "/tmp/%p.prom"},
                                {"BRAID_STATS_SIGNAL", "USR2"},
                                {"BRAID_STATS_INTERVAL", "15"},
                                {"BRAID_LOG", "stderr"},
                                {"BRAID_THRESHOLD", "2M"},
                                {"BRAID_COSTS", "/tmp/costs.json"}})
                              .value();
  EXPECT_TRUE(options.relays.allows(3));
  EXPECT_FALSE(options.relays.allows(2));
  EXPECT_EQ(options.stats, StatsFormat::kJson);
  EXPECT_EQ(options.stats_file, "/tmp/%p.prom");
  EXPECT_EQ(options.stats_signal, SIGUSR2);
  EXPECT_EQ(options.stats_interval_s, 15);
  EXPECT_EQ(options.log, "stderr");
  EXPECT_EQ(options.threshold_bytes, 2u << 20);
  EXPECT_EQ(options.costs, "/tmp/costs.json");
}

TEST(Options, AnExperimentSetsWhatIsNoOption) {
  const Options options = read({{"BRAID_EXPERIMENT", "slice=256K,blocks=8"}}).value();
  EXPECT_EQ(options.slice_bytes, 256u << 10);
  EXPECT_EQ(options.blocks_per_path, 8u);
}

TEST(Options, AutoIsTheDefaultByName) {
  const Options options = read({{"BRAID_THRESHOLD", "auto"}, {"BRAID_COSTS", "auto"}}).value();
  EXPECT_EQ(options.threshold_bytes, 0u);
  EXPECT_EQ(options.costs, "");
}

TEST(Options, TheCacheFolderIsTheUsers) {
  EXPECT_EQ(read({{"HOME", "/people/a"}}).value().cache_folder, "/people/a/.cache");
  EXPECT_EQ(read({{"HOME", "/people/a"}, {"XDG_CACHE_HOME", "/c"}}).value().cache_folder, "/c");
  EXPECT_EQ(read({{"HOME", "/people/a"}, {"XDG_CACHE_HOME", "c"}}).value().cache_folder,
            "/people/a/.cache")
      << "relative ones are ignored, as the XDG base directory specification asks";
  EXPECT_EQ(read({}).value().cache_folder, "");
}

TEST(Options, AFileASignalOrAnIntervalForStatisticsChoosesAFormatToo) {
  EXPECT_EQ(read({{"BRAID_STATS_FILE", "x"}}).value().stats, StatsFormat::kPrometheus);
  EXPECT_EQ(read({{"BRAID_STATS_SIGNAL", "USR1"}}).value().stats, StatsFormat::kText);
  EXPECT_EQ(read({{"BRAID_STATS_INTERVAL", "9"}}).value().stats, StatsFormat::kText);
  EXPECT_EQ(read({{"BRAID_STATS_FILE", "x"}, {"BRAID_STATS", "text"}}).value().stats,
            StatsFormat::kText);
  EXPECT_EQ(read({{"BRAID_LOG", "x"}}).value().stats, StatsFormat::kNone);
}

TEST(Options, HardwareQueuesFollowCudasOwnVariable) {
  EXPECT_EQ(read({}).value().hardware_queues, 8);
  EXPECT_EQ(read({{"CUDA_DEVICE_MAX_CONNECTIONS", "1"}}).value().hardware_queues, 1);
  EXPECT_EQ(read({{"CUDA_DEVICE_MAX_CONNECTIONS", "99"}}).value().hardware_queues, 8);
}

TEST(Options, AnErrorNamesTheVariableAndItsText) {
  for (const auto& [name, text] :
       std::map<std::string, std::string>{{"BRAID_RELAYS", "1,x"},
                                          {"BRAID_STATS", "xml"},
                                          {"BRAID_STATS_SIGNAL", "TERM"},
                                          {"BRAID_STATS_INTERVAL", "0"},
                                          {"BRAID_THRESHOLD", "big"},
                                          {"BRAID_OPENING", "soon"},
                                          {"BRAID_EXPERIMENT", "slices=1"}}) {
    const auto options = read({{name, text}});
    ASSERT_FALSE(options.ok()) << name;
    EXPECT_NE(options.status().message().find(name), std::string::npos);
    EXPECT_NE(options.status().message().find("'" + text + "'"), std::string::npos);
  }
}

TEST(Options, EveryVariableOfTheDocumentIsKnown) {
  std::ostringstream document;
  document << std::ifstream(BRAID_OPTIONS_DOCUMENT).rdbuf();
  const std::string text = document.str();
  const std::regex variable("`(BRAID_[A-Z_]+)");
  int count = 0;
  for (std::sregex_iterator at(text.begin(), text.end(), variable), end; at != end; ++at, ++count)
    setenv((*at)[1].str().c_str(), "1", 1);
  EXPECT_GT(count, 20);
  setenv("BRAID_MISTAKE", "1", 1);
  EXPECT_EQ(unknown_variables(), std::vector<std::string>{"BRAID_MISTAKE"});
}

TEST(Options, EveryRowIsDocumented) {
  EXPECT_LE(option_table().size(), 15u);
  for (const OptionRow& row : option_table()) {
    EXPECT_STRNE(row.meaning, "") << row.name;
    EXPECT_STRNE(row.justification, "") << row.name;
  }
}

}  // namespace
}  // namespace braid
