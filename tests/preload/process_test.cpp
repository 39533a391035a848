// Whole programs, natively and under `braid run`, on the emulated server: the programs are the
// clients in clients/, which look at every byte they copy and know nothing of braid.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/preload/programs.h"

namespace braid::test {
namespace {

class EveryLookup : public ::testing::TestWithParam<const char*> {
 protected:
  std::string client() const {
    return GetParam() == std::string("linked") ? kCopiesLinked : kCopies;
  }
};

// Below, at and above the threshold of 2 MB, three pairs of offsets each.
const Words kSizes = {"1", "4097", "2097151", "2097152", "5000001"};

TEST_P(EveryLookup, CopiesRightNatively) {
  const ChildResult child = natively(joined({client(), GetParam(), "all"}, {"1", "70001"}));
  EXPECT_EQ(child.exit_code, 0) << child.errors;
}

TEST_P(EveryLookup, CopiesRightAndCountsEachEntryPoint) {
  const auto statistics = only_statistics(
      with_braid(joined({client(), GetParam(), "all"}, kSizes), {"--threshold", "2M"}));
  const Counted once{2 * 3, 3 * (2097152 + 5000001)};
  const Counted both_ways{2 * once.calls, 2 * once.bytes};
  for (const char* symbol :
       {"cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuMemcpyHtoD_v2", "cuMemcpyDtoH_v2",
        "cuMemcpyHtoDAsync_v2_ptsz", "cuMemcpyDtoHAsync_v2_ptsz", "cuMemcpyHtoD_v2_ptds",
        "cuMemcpyDtoH_v2_ptds"})
    EXPECT_EQ(counted(statistics, symbol, "accelerated"), once) << symbol << statistics;
  for (const char* symbol : {"cuMemcpy", "cuMemcpyAsync", "cuMemcpy_ptds", "cuMemcpyAsync_ptsz"})
    EXPECT_EQ(counted(statistics, symbol, "accelerated"), both_ways) << symbol << statistics;
  const Counted small{3 * 3, 3 * (1 + 4097 + 2097151)};
  EXPECT_EQ(counted(statistics, "cuMemcpyHtoDAsync_v2", "below_threshold"), small) << statistics;
  EXPECT_EQ(counted(statistics, "cuMemcpyDtoH_v2_ptds", "below_threshold"), small) << statistics;
  EXPECT_EQ(path_bytes(statistics), 16 * once.bytes) << statistics;
}

INSTANTIATE_TEST_SUITE_P(Process, EveryLookup,
                         ::testing::Values("dlsym", "dlsym_old", "default", "proc", "proc_v1",
                                           "proc_nested", "linked"),
                         [](const auto& way) { return std::string(way.param); });

// By default relays open beside the program, and the cost model decides: other copies are carried
// in each run, and no program sees that.
TEST(Process, EachKindOfProgramDoesByDefaultWhatItDoesNatively) {
  std::vector<Words> programs = {{kCopies, "dlsym", "few", "30000001"},
                                 {kCopiesLinked, "linked", "few", "30000001"}};
  for (const char* scenario :
       {"copy_once", "exit_with_7", "pageable", "pageable_fork", "pageable_threads", "registered",
        "capturing", "device_to_device", "peers", "fork_copying", "fork_first", "exit_in_flight",
        "threads", "own_context", "primary_reset", "copies_beside_a_recording"})
    programs.push_back({kScenarios, scenario});
  for (const Words& program : programs) {
    const ChildResult native = natively(program);
    const ChildResult child = by_default(program);
    EXPECT_EQ(child.exit_code, native.exit_code) << program[1] << child.errors;
    EXPECT_EQ(child.output, native.output) << program[1];
    EXPECT_EQ(child.other_errors(), native.errors) << program[1];
  }
}

// As programs are whose titles others set: Ray's workers.
TEST(Process, AProgramThatHasClearedItsNameIsReportedByWhatPsShows) {
  const ChildResult child = run_child(
      {BRAID_COMMAND, "run", "--server", "h20x8", "--stats", "text", "--", kScenarios, "nameless"});
  EXPECT_NE(child.errors.find(" (a worker)"), std::string::npos) << child.errors;
}

TEST(Process, AGigabyteIsRightBothWays) {
  const auto statistics = only_statistics(
      with_braid({kCopies, "dlsym", "few", std::to_string((uint64_t{1} << 30) - 5)}));
  EXPECT_EQ(counted(statistics, "cuMemcpyHtoDAsync_v2", "accelerated").calls, 1u) << statistics;
  EXPECT_EQ(counted(statistics, "cuMemcpyDtoHAsync_v2", "accelerated").calls, 1u) << statistics;
  EXPECT_GT(statistics.at("paths").size(), 2u) << statistics;
}

TEST(Process, PathsAreSharedOut) {
  const auto statistics =
      only_statistics(with_braid({kScenarios, "copy_once"}, {"--relays", "1,2"}));
  EXPECT_EQ(path_bytes(statistics), kScenarioBytes);
  for (const auto& path : statistics.at("paths")) {
    EXPECT_EQ(path.at("target"), 0);
    EXPECT_LE(path.at("via").get<int>(), 2);
    EXPECT_EQ(path.at("direction"), "h2d");
  }
}

TEST(Process, WithoutRelaysEveryCopyIsNativeAndSaysWhy) {
  const auto statistics =
      only_statistics(with_braid({kScenarios, "copy_once"}, {"--relays", "none"}));
  EXPECT_EQ(counted(statistics, "cuMemcpyHtoDAsync_v2", "no_relay"), (Counted{1, kScenarioBytes}));
  EXPECT_EQ(path_bytes(statistics), 0u);
}

TEST(Process, PageableMemoryIsNativeWhereStagingIsOff) {
  const auto statistics =
      only_statistics(with_braid({kScenarios, "pageable"}, {"--pageable", "0"}));
  EXPECT_EQ(counted(statistics, "cuMemcpyHtoD_v2", "pageable"), (Counted{2, 2 * kScenarioBytes}));
  EXPECT_EQ(path_bytes(statistics), 0u);
}

TEST(Process, RegisteredMemoryIsAccelerated) {
  const auto statistics = only_statistics(with_braid({kScenarios, "registered"}));
  EXPECT_EQ(counted(statistics, "cuMemcpyHtoDAsync_v2", "accelerated"),
            (Counted{1, kScenarioBytes}));
}

TEST(Process, ACopyWithinAGpuIsNotLinear) {
  const auto statistics = only_statistics(with_braid({kScenarios, "device_to_device"}));
  EXPECT_EQ(counted(statistics, "cuMemcpy", "not_linear"), (Counted{1, kScenarioBytes}));
}

TEST(Process, ARelayIsOpenedBesideACaptureOfAnotherThread) {
  const ChildResult native = natively({kScenarios, "relay_opened_beside_a_capture"});
  ASSERT_EQ(native.exit_code, 0) << native.errors;
  for (const char* mover : {"kernel", "copy-engine"}) {
    const auto statistics = only_statistics(
        with_braid({kScenarios, "relay_opened_beside_a_capture"}, {"--mover", mover}));
    EXPECT_EQ(counted(statistics, "cuMemcpyHtoDAsync_v2", "accelerated").calls, 1u) << mover;
    const auto& paths = statistics.at("paths");
    EXPECT_TRUE(std::any_of(paths.begin(), paths.end(),
                            [](const auto& path) { return path.at("via") == 1; }))
        << mover << ": GPU 1 was no relay";
  }
}

TEST(Process, ACapturedCopyStaysInItsGraph) {
  const ChildResult child = with_braid({kScenarios, "capturing"});
  ASSERT_EQ(child.exit_code, 0) << child.errors;
  if (child.output == "no capture here\n") GTEST_SKIP() << "this driver has no stream capture";
  EXPECT_EQ(child.output, "captured\n");
  EXPECT_EQ(counted(only_statistics(child), "cuMemcpyHtoDAsync_v2", "capturing").calls, 1u);
}

TEST(Process, PeerAccessAnswersAsNatively) {
  const ChildResult native = natively({kScenarios, "peers"});
  const ChildResult braided = with_braid({kScenarios, "peers"});
  ASSERT_EQ(native.exit_code, 0) << native.errors;
  EXPECT_EQ(braided.output, native.output);
  const auto statistics = only_statistics(braided);
  EXPECT_EQ(counted(statistics, "cuMemcpyHtoDAsync_v2", "accelerated").calls, 2u)
      << "braid lost its own access: " << statistics;
}

// Where the driver lets the other GPUs' contexts live.
TEST(Process, AFaultOnAnotherGpuIsOfNoConcernToACopy) {
  const test::Environment alone{{"BRAID_FAULTS", R"({"contexts_fail_alone": true})"}};
  const ChildResult native = natively({kScenarios, "fault_beside_a_copy"}, alone);
  EXPECT_EQ(native.output, "0 0\n") << native.errors;
  const ChildResult child = with_braid({kScenarios, "fault_beside_a_copy"}, {}, alone);
  EXPECT_EQ(child.exit_code, 0) << child.errors;
  EXPECT_EQ(child.output, native.output);
  EXPECT_EQ(child.other_errors(), "") << "the relay is in a context of braid's own";
}

TEST(Process, AFaultThatEndsEveryContextIsHeardAsNatively) {
  const ChildResult native = natively({kScenarios, "fault_beside_a_copy"});
  EXPECT_EQ(native.output, "719 719\n") << native.errors;
  for (const char* mover : {"kernel", "copy-engine"}) {
    const ChildResult child = with_braid({kScenarios, "fault_beside_a_copy"}, {"--mover", mover});
    EXPECT_EQ(child.exit_code, 0) << child.errors;
    EXPECT_EQ(child.output, native.output) << mover;
    EXPECT_EQ(child.other_errors(), "") << mover;
  }
}

TEST(Process, AnIdleForkedChildSaysNothing) {
  const auto statistics = only_statistics(with_braid({kScenarios, "fork_idle"}));
  EXPECT_EQ(counted(statistics, "cuMemcpyHtoDAsync_v2", "accelerated").calls, 2u);
}

TEST(Process, AForkedChildHearsWhatItWouldNatively) {
  const ChildResult native = natively({kScenarios, "fork_copying"});
  const ChildResult braided = with_braid({kScenarios, "fork_copying"});
  ASSERT_EQ(native.exit_code, 0) << native.errors;
  EXPECT_EQ(braided.output, native.output);
  const auto all = braided.statistics();  // the child's, which leaves by _exit, and the parent's
  ASSERT_EQ(all.size(), 2u) << braided.errors;
  EXPECT_EQ(counted(all[0], "cuMemcpyHtoD_v2", "failed").calls, 1u) << all[0];
  EXPECT_EQ(counted(all[1], "cuMemcpyHtoDAsync_v2", "accelerated").calls, 2u) << all[1];
}

TEST(Process, AChildMayBeTheOneThatUsesCuda) {
  const auto statistics = only_statistics(with_braid({kScenarios, "fork_first"}));
  EXPECT_EQ(counted(statistics, "cuMemcpyHtoDAsync_v2", "accelerated").calls, 1u);
}

TEST(Process, ExitsCleanlyWithCopiesInFlight) {
  const auto statistics = only_statistics(with_braid({kScenarios, "exit_in_flight"}));
  uint64_t calls = 0;
  for (const auto& [verdict, count] : statistics["entry_points"]["cuMemcpyHtoDAsync_v2"].items())
    calls += count.at("calls").get<uint64_t>();
  EXPECT_EQ(calls, 20u) << statistics;
}

TEST(Process, ThreadsMayRaceOnFirstUse) {
  for (int round = 0; round < 3; ++round) {
    const auto statistics = only_statistics(with_braid({kScenarios, "threads"}));
    uint64_t calls = 0;
    for (const auto& [verdict, count] : statistics["entry_points"]["cuMemcpyHtoDAsync_v2"].items())
      calls += count.at("calls").get<uint64_t>();
    EXPECT_EQ(calls, 24u) << statistics;
  }
}

TEST(Process, ContextsOfTheProgramsOwnComeAndGo) {
  const auto statistics = only_statistics(with_braid({kScenarios, "own_context"}));
  EXPECT_EQ(counted(statistics, "cuMemcpyHtoDAsync_v2", "accelerated").calls, 2u) << statistics;
}

TEST(Process, APrimaryContextMayBeReset) {
  const auto statistics = only_statistics(with_braid({kScenarios, "primary_reset"}));
  EXPECT_GE(counted(statistics, "cuMemcpyHtoDAsync_v2", "accelerated").calls, 1u) << statistics;
}

TEST(Process, TheExitCodeIsThePrograms) {
  EXPECT_EQ(with_braid({kScenarios, "exit_with_7"}).exit_code, 7);
}

TEST(Process, TextStatisticsShowEachPathsShare) {
  const ChildResult child = run_child({BRAID_COMMAND, "run", "--server", "h20x8", "--stats", "text",
                                       "--relays", "1", "--", kScenarios, "copy_once"},
                                      waiting());
  EXPECT_EQ(child.exit_code, 0);
  EXPECT_NE(child.errors.find("GPU 0 direct"), std::string::npos) << child.errors;
  EXPECT_NE(child.errors.find("GPU 0 through GPU 1"), std::string::npos) << child.errors;
  EXPECT_NE(child.errors.find('%'), std::string::npos) << child.errors;
}

// Whoever asks for a report has one, whatever there is to tell.
TEST(Process, AReportThatIsAskedForIsNeverMissing) {
  const auto errors = [](const Words& program) {
    Words words = {BRAID_COMMAND, "run", "--server", "h20x8", "--stats", "text", "--"};
    words.insert(words.end(), program.begin(), program.end());
    const ChildResult child = run_child(words);
    EXPECT_EQ(child.exit_code, 0) << child.errors;
    return child.errors;
  };
  EXPECT_NE(errors({"true"}).find("saw no CUDA driver"), std::string::npos);
  EXPECT_NE(errors({"sh", "-c", "/bin/true; :"}).find("saw no CUDA driver"), std::string::npos)
      << "it leaves by _exit";
  EXPECT_NE(errors({kScenarios, "no_copies"}).find("no copies between host memory"),
            std::string::npos);
  EXPECT_EQ(errors({"sh", "-c", "/bin/true; /bin/true; :"}).find("(true)"), std::string::npos)
      << "children that load no driver say nothing";
  const std::string once = errors({kScenarios, "copy_once"});
  EXPECT_EQ(once.find("braid: process "), 0u) << once;
  EXPECT_EQ(once.find("saw no CUDA"), std::string::npos) << once;
}

TEST(Process, ACopyThatTheDriverRefusesIsCountedAsFailed) {
  const auto statistics = only_statistics(with_braid({kScenarios, "refused_copy"}));
  EXPECT_EQ(counted(statistics, "cuMemcpyHtoD_v2", "failed").calls, 1u) << statistics;
}

TEST(Process, ASynchronousCopyHurtsNoRecording) {
  const auto statistics = only_statistics(with_braid({kScenarios, "copies_beside_a_recording"}));
  EXPECT_EQ(counted(statistics, "cuMemcpyHtoD_v2", "accelerated").calls, 1u) << statistics;
}

TEST(Process, AStaticProgramIsNamed) {
  const ChildResult child = run_child(
      {BRAID_COMMAND, "run", "--server", "h20x8", "--", BRAID_TEST_CLIENTS "/client_static"});
  EXPECT_EQ(child.exit_code, 0) << child.errors;
  EXPECT_NE(child.errors.find("statically linked"), std::string::npos) << child.errors;
}

TEST(Process, NoStatisticsUnlessAsked) {
  const ChildResult child =
      run_child({BRAID_COMMAND, "run", "--server", "h20x8", "--", kScenarios, "copy_once"});
  EXPECT_EQ(child.exit_code, 0);
  EXPECT_EQ(child.errors, "");
}

// braid preloaded by hand, without `braid run` to look at the options first.
Environment preloaded_by_hand(const std::string& preload = BRAID_PRELOAD_LIBRARY) {
  return waiting({{"LD_LIBRARY_PATH", BRAID_EMULATOR_FOLDER},
                  {"BRAID_SERVER", BRAID_PROFILES "/h20x8.json"},
                  {"BRAID_STATS", "json"},
                  {"LD_PRELOAD", preload}});
}

void expect_one_complaint(const ChildResult& child, const std::string& about) {
  EXPECT_EQ(child.exit_code, 0) << child.errors;
  const std::string errors = child.other_errors();
  EXPECT_EQ(std::count(errors.begin(), errors.end(), '\n'), 1) << errors;
  EXPECT_TRUE(errors.starts_with("braid: ")) << errors;
  EXPECT_NE(errors.find(about), std::string::npos) << errors;
  EXPECT_NE(errors.find("stays native"), std::string::npos) << errors;
}

TEST(Process, ABadOptionIsSaidOnceAndEverythingStaysNative) {
  Environment environment = preloaded_by_hand();
  environment["BRAID_THRESHOLD"] = "huge";
  expect_one_complaint(run_child({kScenarios, "fork_idle"}, environment),
                       "BRAID_THRESHOLD: 'huge'");
}

TEST(Process, BraidStaysOutUnderASanitizerAndSaysSo) {
  Environment environment = preloaded_by_hand();
  environment["NV_SANITIZER_INJECTION_PORT_BASE"] = "49152";
  expect_one_complaint(run_child({kScenarios, "copy_once"}, environment), "compute-sanitizer");
}

// Found by default settings on hardware: the program hung as soon as its relays were open.
TEST(Process, BraidStaysOutUnderNsightComputeAndSaysSo) {
  Environment environment = preloaded_by_hand();
  environment["NV_COMPUTE_PROFILER_PERFWORKS_DIR"] = "/opt/nvidia/nsight-compute/target";
  const ChildResult child = run_child({kScenarios, "copy_once"}, environment);
  expect_one_complaint(child, "Nsight Compute");
  ASSERT_EQ(child.statistics().size(), 1u) << child.errors;
  EXPECT_EQ(counted(child.statistics()[0], "cuMemcpyHtoDAsync_v2", "accelerated").calls, 0u);
}

// cuda-gdb found by default settings on hardware: the program hung while relays opened.
TEST(Process, BraidStaysOutUnderCudaGdbAndSaysSo) {
  const ChildResult child = run_child({kScenarios, "copy_once_debugged"}, preloaded_by_hand());
  expect_one_complaint(child, "cuda-gdb");
  ASSERT_EQ(child.statistics().size(), 1u) << child.errors;
  EXPECT_EQ(counted(child.statistics()[0], "cuMemcpyHtoDAsync_v2", "accelerated").calls, 0u);
}

TEST(Process, AnEngineThatDoesNotOpenIsSaidOnceAndEverythingStaysNative) {
  Environment environment = preloaded_by_hand();
  environment["BRAID_RELAYS"] = "1,99";
  const ChildResult child = run_child({kScenarios, "fork_idle"}, environment);
  expect_one_complaint(child, "GPU 99");
  ASSERT_EQ(child.statistics().size(), 1u) << child.errors;
  EXPECT_EQ(counted(child.statistics()[0], "cuMemcpyHtoDAsync_v2", "not_ready").calls, 2u);
}

TEST(Bystander, ProgramsWithoutCudaNoticeNothing) {
  const Environment preload{{"LD_PRELOAD", BRAID_PRELOAD_LIBRARY}, {"BRAID_STATS", "json"}};
  for (const Words& program : std::vector<Words>{
           {"bash", "-c", "echo $((6*7)); exit 3"},
           {"env", "-i", "ls", "/"},
           {"python3", "-c", "import ssl, ctypes, os; print(ctypes.CDLL(None).abs(-3))"},
           {kScenarios, "no_driver"}}) {
    const ChildResult native = run_child(program);
    const ChildResult preloaded = run_child(program, preload);
    EXPECT_EQ(preloaded.exit_code, native.exit_code) << program[0];
    EXPECT_EQ(preloaded.output, native.output) << program[0];
    EXPECT_EQ(preloaded.errors, native.errors) << program[0];
  }
}

TEST(Bystander, ABadOptionIsNothingToProgramsWithoutCuda) {
  const ChildResult child =
      run_child({"true"}, {{"LD_PRELOAD", BRAID_PRELOAD_LIBRARY}, {"BRAID_RELAYS", "everyone"}});
  EXPECT_EQ(child.exit_code, 0);
  EXPECT_EQ(child.errors, "");
}

TEST(Bystander, AFunctionOfTheSameNameInAnotherLibraryIsItsOwn) {
  const ChildResult child =
      with_braid({kScenarios, "namesake", BRAID_TEST_CLIENTS "/libclient_namesake.so"});
  EXPECT_EQ(child.exit_code, 0) << child.errors;
  EXPECT_EQ(child.output, "4711\n4712\n");
}

// Either order: each library's RTLD_NEXT is answered for itself, and its dlsym is still asked.
TEST(Bystander, AnotherInterposerWorksBesideBraid) {
  const std::string beside = BRAID_TEST_CLIENTS "/libclient_beside.so";
  const std::string ours = BRAID_PRELOAD_LIBRARY;
  for (const std::string& order : {beside, beside + ":" + ours, ours + ":" + beside}) {
    const ChildResult child = run_child({kScenarios, "bystander"}, {{"LD_PRELOAD", order}});
    EXPECT_EQ(child.exit_code, 0) << order << child.errors;
    EXPECT_EQ(child.output, "beside: 1 lookups, 1 parents, 0 allocations\n") << order;
  }
  for (const std::string& order : {beside, beside + ":" + ours}) {
    const ChildResult child = with_braid({kScenarios, "copy_once"}, {}, {{"LD_PRELOAD", order}});
    EXPECT_EQ(counted(only_statistics(child), "cuMemcpyHtoDAsync_v2", "accelerated").calls, 1u);
  }
}

TEST(Bystander, AnInterposerOfTheDriverBesideBraidFindsBraidNext) {
  const std::string beside = BRAID_TEST_CLIENTS "/libclient_beside.so";
  const std::string ours = BRAID_PRELOAD_LIBRARY;
  const Words program{kCopiesLinked, "linked", "few", "9000001"};
  for (const std::string& order : {beside + ":" + ours, ours + ":" + beside}) {
    const ChildResult child = run_child(program, preloaded_by_hand(order));
    EXPECT_EQ(counted(only_statistics(child), "cuMemcpyHtoDAsync_v2", "accelerated").calls, 1u)
        << order << child.errors;
    if (order.starts_with(beside)) {
      EXPECT_NE(child.output.find("1 allocations"), std::string::npos) << child.output;
    }
  }
}

}  // namespace
}  // namespace braid::test
