// `braid doctor`: a line for each check, and an exit code that says whether braid can help.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <sstream>

#include "tests/support/child.h"

namespace braid::test {
namespace {

using Words = std::vector<std::string>;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(Doctor, FindsAnEmulatedServerWell) {
  const ChildResult child = run_child({BRAID_COMMAND, "doctor", "--server", "h20x8"});
  EXPECT_EQ(child.exit_code, 0) << child.output << child.errors;
  const auto lines = lines_of(child.output);
  const char* const checks[] = {
      "ok   driver",
      "ok   peers",
      "     ",
      "     ",
      "     ",
      "     ",
      "     ",
      "     ",
      "     ",
      "     ",
      "ok   costs    defaults",
      "ok   mover    auto: copy engines, and kernels for batches; by default costs",
      "ok   sizes    ",
      "ok   pageable ",
      "ok   options  ",
      "ok   library",
      "ok   hooks",
      "ok   copy"};
  ASSERT_EQ(lines.size(), std::size(checks)) << child.output;
  for (size_t index = 0; index < lines.size(); ++index) {
    EXPECT_TRUE(lines[index].starts_with(checks[index])) << lines[index];
    EXPECT_LE(lines[index].size(), 120u) << lines[index];
  }
  EXPECT_NE(lines[0].find("8 GPUs"), std::string::npos) << lines[0];
  EXPECT_NE(lines[9].find("GPU 7: relays 0,1,2,3,4,5,6"), std::string::npos) << lines[9];
  EXPECT_NE(lines.back().find("32 copies verified"), std::string::npos) << lines.back();
}

std::string line_of(const std::string& output, const std::string& check) {
  for (const std::string& line : lines_of(output))
    if (line.starts_with("ok   " + check)) return line.substr(14);
  return "no line for " + check;
}

TEST(Doctor, SaysWhatIsInForce) {
  const Words doctor{BRAID_COMMAND, "doctor", "--server", "h200x4"};
  const std::string usual = run_child(doctor, {{"BRAID_PAGEABLE", "3"}}).output;
  EXPECT_EQ(line_of(usual, "mover"),
            "auto: copy engines, and kernels for batches; by default costs");
  EXPECT_TRUE(line_of(usual, "sizes").starts_with("h2d from ")) << usual;
  EXPECT_NE(line_of(usual, "sizes").find(", d2h from "), std::string::npos) << usual;
  EXPECT_EQ(line_of(usual, "pageable"), "3 threads stage copies of 1M and more");

  const std::string other = run_child(doctor, {{"BRAID_MOVER", "copy-engine"},
                                               {"BRAID_THRESHOLD", "2M"},
                                               {"BRAID_PAGEABLE", "0"},
                                               {"BRAID_THREHSOLD", "4M"}})
                                .output;
  EXPECT_EQ(line_of(other, "mover"), "copy engines alone: BRAID_MOVER=copy-engine");
  EXPECT_EQ(line_of(other, "sizes"), "copies of 2M and more are carried: BRAID_THRESHOLD");
  EXPECT_NE(line_of(other, "pageable").find("natively: BRAID_PAGEABLE=0"), std::string::npos);
  const std::string options = line_of(other, "options");
  EXPECT_NE(options.find("BRAID_MOVER=copy-engine"), std::string::npos) << options;
  EXPECT_TRUE(options.ends_with("; unknown: BRAID_THREHSOLD")) << options;
}

// Its verdict is that of the program that the user would start.
TEST(Doctor, GoesByTheUsersOptionsAndEnvironment) {
  const ChildResult none =
      run_child({BRAID_COMMAND, "doctor", "--server", "h20x8"}, {{"BRAID_RELAYS", "none"}});
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_NE(none.output.find("FAIL copy     the copies are right but stayed native"),
            std::string::npos)
      << none.output;
  const ChildResult one = run_child(
      {BRAID_COMMAND, "doctor", "--server", "h20x8", "--relays", "2", "--mover", "kernel"},
      {{"BRAID_THRESHOLD", "100M"}, {"BRAID_STATS_FILE", "/tmp/no_statistics_of_the_probe"}});
  EXPECT_EQ(one.exit_code, 0) << one.output;
  EXPECT_TRUE(line_of(one.output, "copy")
                  .starts_with("28 copies verified byte by byte, each over the links of 2 GPUs"))
      << one.output;
  // Nobody is left to relay for the relay itself.
  EXPECT_TRUE(one.output.find("; those of GPU 2 stay native: no_relay\n") != std::string::npos)
      << one.output;
}

TEST(Doctor, NamesGpusThatAreKeptForOthers) {
  const Words doctor{BRAID_COMMAND, "doctor", "--server", "h20x8"};
  const ChildResult one = run_child(doctor, {{"EMULATED_COMPUTE_MODES", "0,3"}});
  EXPECT_NE(one.output.find("GPU 1 is in exclusive-process mode, and so does not relay"),
            std::string::npos)
      << one.output << one.errors;
  const ChildResult all = run_child(doctor, {{"EMULATED_COMPUTE_MODES", "3,3,3,3,3,3,3,3"}});
  EXPECT_EQ(all.exit_code, 1) << all.output;
  EXPECT_NE(all.output.find("`nvidia-smi -c DEFAULT` lets it"), std::string::npos) << all.output;
}

TEST(Doctor, JudgesLentGpusAsTheProgramGetsThem) {
  const Words doctor{BRAID_COMMAND, "doctor", "--server", "h20x8"};
  const Environment two{{"CUDA_VISIBLE_DEVICES", "3,5"}};
  Words lend = doctor;
  lend.insert(lend.end(), {"--lend", "all"});
  const ChildResult lent = run_child(lend, two);
  EXPECT_EQ(lent.exit_code, 0) << lent.output << lent.errors;
  EXPECT_NE(line_of(lent.output, "driver").find("2 GPUs and 6 lent"), std::string::npos);
  EXPECT_TRUE(line_of(lent.output, "peers").starts_with("2 of 2 GPUs have relays")) << lent.output;
  EXPECT_TRUE(line_of(lent.output, "copy")
                  .starts_with("8 copies verified byte by byte, each over the links of 8 GPUs"))
      << lent.output;
  Words counted = lend;
  counted.insert(counted.end(), {"--stats", "text"});
  const ChildResult text = run_child(counted, two);
  EXPECT_NE(line_of(text.output, "driver").find("2 GPUs and 6 lent"), std::string::npos)
      << text.output << text.errors;
  lend.back() = "9";
  const ChildResult wrong = run_child(lend, two);
  EXPECT_EQ(wrong.exit_code, 1);
  EXPECT_TRUE(wrong.output.starts_with("FAIL driver   --lend: '9' is none of the 8 GPUs"))
      << wrong.output;
}

TEST(Doctor, NamesTheGpusThatAreHidden) {
  const Words doctor{BRAID_COMMAND, "doctor", "--server", "h20x8"};
  const Environment one{{"CUDA_VISIBLE_DEVICES", "3"}};
  const ChildResult alone = run_child(doctor, one);
  EXPECT_EQ(alone.exit_code, 1) << alone.output;
  EXPECT_NE(alone.output.find("FAIL peers    0 of 1 GPUs have relays. CUDA_VISIBLE_DEVICES hides 7 "
                              "GPUs: lend them to braid with --lend all\n"),
            std::string::npos)
      << alone.output;
  Words lend = doctor;
  lend.insert(lend.end(), {"--lend", "all"});
  EXPECT_EQ(run_child(lend, one).exit_code, 0);
}

TEST(Doctor, DoesNotAdviseToLendWhatIsLent) {
  const ChildResult child =
      run_child({BRAID_COMMAND, "doctor", "--server", "h20x8", "--lend", "all"},
                {{"CUDA_VISIBLE_DEVICES", "0,9"}});
  EXPECT_EQ(child.exit_code, 1) << child.output;
  EXPECT_NE(child.output.find("FAIL peers    0 of 1 GPUs have relays. No GPU is lent for "
                              "CUDA_VISIBLE_DEVICES='0,9': name GPUs that are there, by numbers or "
                              "by UUIDs, each once\n"),
            std::string::npos)
      << child.output;
}

// A variable that hides none is not blamed.
TEST(Doctor, WithoutHiddenGpusNamesWhatBraidNeeds) {
  const ChildResult child = run_child(
      {BRAID_COMMAND, "doctor", "--server", "h20x8"},
      {{"CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5,6,7"}, {"EMULATED_COMPUTE_MODES", "3,3,3,3,3,3,3,3"}});
  EXPECT_EQ(child.exit_code, 1) << child.output;
  EXPECT_EQ(child.output.find("hides"), std::string::npos) << child.output;
  EXPECT_NE(child.output.find("`nvidia-smi -c DEFAULT` lets it"), std::string::npos)
      << child.output;
}

TEST(Doctor, InsideBraidRunIsTheSame) {
  const Words doctor{BRAID_COMMAND, "doctor", "--server", "h200x4"};
  const ChildResult inside = run_child({BRAID_COMMAND, "run", "--server", "h200x4", "--",
                                        BRAID_COMMAND, "doctor", "--server", "h200x4"});
  EXPECT_EQ(inside.exit_code, 0) << inside.errors;
  EXPECT_EQ(inside.output, run_child(doctor).output);
}

TEST(Doctor, AnOptionThatCannotBeReadIsAFinding) {
  const ChildResult child =
      run_child({BRAID_COMMAND, "doctor", "--server", "h200x4"}, {{"BRAID_MOVER", "camel"}});
  EXPECT_EQ(child.exit_code, 1);
  EXPECT_NE(child.output.find("FAIL options  BRAID_MOVER: 'camel'"), std::string::npos)
      << child.output;
}

TEST(Doctor, ListsTheHooksWhenAsked) {
  const ChildResult child = run_child({BRAID_COMMAND, "doctor", "--server", "h20x8", "--verbose"});
  for (const char* symbol : {"cuGetProcAddress_v2", "cuMemcpyHtoDAsync_v2_ptsz", "cuMemHostAlloc"})
    EXPECT_NE(child.output.find(symbol), std::string::npos) << child.output;
}

TEST(Doctor, AnUnknownServerIsNamed) {
  const ChildResult child = run_child({BRAID_COMMAND, "doctor", "--server", "nowhere"});
  EXPECT_EQ(child.exit_code, 1);
  EXPECT_NE(child.errors.find("'nowhere'"), std::string::npos) << child.errors;
}

TEST(Doctor, WithoutADriverSaysTheRemedy) {
  if (dlopen("libcuda.so.1", RTLD_LAZY) != nullptr) GTEST_SKIP() << "this machine has a driver";
  const ChildResult child = run_child({BRAID_COMMAND, "doctor"});
  EXPECT_EQ(child.exit_code, 1);
  EXPECT_TRUE(child.output.starts_with("FAIL driver")) << child.output;
  EXPECT_NE(child.output.find("Install the NVIDIA driver"), std::string::npos) << child.output;
  EXPECT_NE(child.output.find("ok   library"), std::string::npos) << child.output;
}

TEST(Doctor, TheProbeIsNotInTheHelp) {
  const ChildResult child = run_child({BRAID_COMMAND, "--help"});
  EXPECT_EQ(child.output.find("probe"), std::string::npos);
}

}  // namespace
}  // namespace braid::test
