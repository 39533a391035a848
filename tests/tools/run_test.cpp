// `braid run`: what the program is given, and what is said when it cannot be started.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>

#include <filesystem>
#include <fstream>

#include "base/options.h"
#include "multipath/engine.h"
#include "tests/support/own_folder.h"
#include "tests/tools/braid_run.h"

namespace braid::test {
namespace {

namespace fs = std::filesystem;

TEST(Run, TheNumberOfHardwareQueuesIsTheProgramsOwn) {
  const Words program = {"/bin/sh", "-c", "echo ${CUDA_DEVICE_MAX_CONNECTIONS-unset}"};
  EXPECT_EQ(braid_run(kEmulated, program).output, "unset\n");
  const Environment chosen{{"CUDA_DEVICE_MAX_CONNECTIONS", "1"}};
  EXPECT_EQ(braid_run(kEmulated, program, chosen).output, "1\n");
}

TEST(Run, TheProgramGetsItsWordsExactly) {
  const Words words{"printf", "<%s>", "[1,2]", "", "a b", "--server", "--", "{}", "-x", "%%"};
  EXPECT_EQ(braid_run(kEmulated, words).output, "<[1,2]><><a b><--server><--><{}><-x><%%>");
}

TEST(Run, TheExitCodeAndTheSignalAreThePrograms) {
  EXPECT_EQ(braid_run(kEmulated, {"sh", "-c", "exit 42"}).exit_code, 42);
  EXPECT_EQ(braid_run(kEmulated, {"sh", "-c", "kill -TERM $$"}).signal, SIGTERM);
}

// cuda-gdb takes symbols of the driver for the first image of a process, and breaks when another
// image follows.
TEST(Run, TheDriverIsNotLoadedInTheProcessThatBecomesTheProgram) {
  const OwnFolder folder;
  const std::string trace = folder.file("loads");
  const std::string emulator = BRAID_EMULATOR_FOLDER;
  const Environment environment{{"LD_DEBUG", "files"},
                                {"LD_DEBUG_OUTPUT", trace},
                                {"LD_LIBRARY_PATH", emulator},
                                {"BRAID_SERVER", "h20x8"}};
  for (const Words& options : std::vector<Words>{{}, {"--relays", "1,2"}, {"--lend", "all"}}) {
    const ChildResult child = braid_run(options, {"sh", "-c", "echo $$"}, environment);
    ASSERT_EQ(child.exit_code, 0) << child.errors;
    const std::string process = child.output.substr(0, child.output.find('\n'));
    std::ifstream loads(trace + "." + process);  // children write their lines there too
    bool is_seen = false;
    for (std::string line; std::getline(loads, line);) {
      if (line.find(process + ":") == std::string::npos) continue;
      is_seen = is_seen || line.find("libc.so.6") != std::string::npos;
      EXPECT_EQ(line.find("libcuda.so.1"), std::string::npos) << line;
    }
    EXPECT_TRUE(is_seen) << "the loader's own account is missing";
  }
}

TEST(Run, TheEnvironmentIsAddedToNotReplaced) {
  const std::string other = BRAID_EMULATOR_FOLDER "/libcuda.so.1";  // any library that loads
  const ChildResult child =
      braid_run(emulated_with({"--relays", "1,2", "--stats", "json", "--threshold", "8M", "--mover",
                               "kernel"}),
                {"sh", "-c",
                 "echo $LD_PRELOAD; echo $LD_LIBRARY_PATH; echo $BRAID_SERVER; echo "
                 "$BRAID_RELAYS,$BRAID_STATS,$BRAID_THRESHOLD,$BRAID_MOVER,$BRAID_LOG"},
                {{"LD_PRELOAD", other}, {"LD_LIBRARY_PATH", "/some/where"}});
  EXPECT_EQ(child.output, std::string(BRAID_PRELOAD_LIBRARY) + ":" + other + "\n" +
                              BRAID_EMULATOR_FOLDER + ":/some/where\n" + BRAID_PROFILES +
                              "/h20x8.json\n1,2,json,8M,kernel,\n");
}

TEST(Run, AnUnknownServerIsNamedWithThoseThereAre) {
  expect_refusal(braid_run({"--server", "h20x9"}, {"true"}), kRunFailed,
                 {"no server profile 'h20x9'", "h200x4", "h20x8"});
}

TEST(Run, ABrokenServerFileIsNamed) {
  const OwnFolder folder;
  const fs::path file = folder.file("broken_server.json");
  std::ofstream(file) << "{\"name\": 3}";
  expect_refusal(braid_run({"--server", file}, {"true"}), kRunFailed, {"broken_server.json"});
}

TEST(Run, ARelayThatDoesNotExistIsNamedWithHowManyThereAre) {
  expect_refusal(braid_run(emulated_with({"--relays", "1,8"}), {"true"}), kRunFailed,
                 {"GPU 8", "8 GPUs", "0 to 7"});
  EXPECT_EQ(braid_run(emulated_with({"--relays", "1,7"}), {"true"}).exit_code, 0);
  expect_refusal(braid_run(kEmulated, {"true"}, {{"BRAID_RELAYS", "12"}}), kRunFailed, {"GPU 12"});
}

TEST(Run, OptionsThatCannotBeReadAreNamed) {
  expect_refusal(braid_run(emulated_with({"--relays", "1,x"}), {"true"}), kRunFailed,
                 {"--relays: '1,x'"});
  expect_refusal(braid_run(emulated_with({"--stats", "xml"}), {"true"}), kRunFailed,
                 {"--stats: 'xml'", "text, json or prometheus"});
  expect_refusal(braid_run(emulated_with({"--stats-signal", "TERM"}), {"true"}), kRunFailed,
                 {"--stats-signal: 'TERM'", "USR1 or USR2"});
  expect_refusal(braid_run(emulated_with({"--threshold", "big"}), {"true"}), kRunFailed,
                 {"--threshold: 'big'"});
  expect_refusal(braid_run(kEmulated, {"true"}, {{"BRAID_PAGEABLE", "x"}}), kRunFailed,
                 {"BRAID_PAGEABLE: 'x'"});
  expect_refusal(braid_run(emulated_with({"--relais", "1"}), {"true"}), kRunFailed, {"'--relais'"});
}

TEST(Run, OptionsThatWouldDoNothingAreNamed) {
  expect_refusal(braid_run(emulated_with({"--device-memory", "1K"}), {"true"}), kRunFailed,
                 {"--device-memory: '1K' is too small", "4M or more"});
  expect_refusal(braid_run(emulated_with({"--costs", "/no/file"}), {"true"}), kRunFailed,
                 {"/no/file: cannot be read: No such file"});
  expect_refusal(braid_run(emulated_with({"--costs", "/tmp"}), {"true"}), kRunFailed,
                 {"/tmp: is a folder"});
  for (const char* option : {"--stats-file", "--log"})
    expect_refusal(braid_run(emulated_with({option, "/no/folder/%p"}), {"true"}), kRunFailed,
                   {"cannot write '/no/folder/", "No such file"});
  expect_refusal(braid_run({"--server", ""}, {"true"}), kRunFailed, {"--server: names no server"});
  expect_refusal(braid_run({"--server", "/dev/null"}, {"true"}), kRunFailed,
                 {"'/dev/null' is no regular file"});
}

// The report replaces the file: as root, /dev/null would be one no more.
TEST(Run, OnlyARegularFileIsReplacedByStatistics) {
  const OwnFolder folder;
  const fs::path file = folder.file("fifo");
  ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
  expect_refusal(braid_run(emulated_with({"--stats-file", file}), {"true"}), kRunFailed,
                 {"'" + file.string() + "' is no regular file", "Leave --stats-file out"});
  EXPECT_TRUE(fs::is_fifo(file));
  fs::remove(file);
  fs::create_symlink("/proc/self/fd/2", file);  // as /dev/stderr
  expect_refusal(braid_run(emulated_with({"--stats-file", file}), {"true"}), kRunFailed,
                 {"'" + file.string() + "' is no regular file"});
}

// The loader preloads nothing where the rights of a program's file are not those of its user.
TEST(Run, ASetuidProgramIsNamed) {
  if (geteuid() != 0) GTEST_SKIP() << "only root makes other users' programs";
  const OwnFolder folder;
  struct statvfs mount {};
  if (statvfs(folder.path().c_str(), &mount) != 0 || (mount.f_flag & ST_NOSUID) != 0)
    GTEST_SKIP() << "no program gains rights there";
  fs::permissions(folder.path(), fs::perms(0755));
  const std::string program = folder.file("suid");
  fs::copy_file("/bin/true", program);
  const auto warning = [&] { return braid_run(kEmulated, {program}).errors; };
  ASSERT_EQ(chmod(program.c_str(), 04755), 0);
  EXPECT_EQ(warning(), "") << "it is this user's";
  ASSERT_EQ(chown(program.c_str(), 65534, 0), 0);
  EXPECT_EQ(warning(), "") << "chown takes the bit away";
  ASSERT_EQ(chmod(program.c_str(), 04755), 0);
  EXPECT_NE(warning().find("suid' is setuid or setgid, or has capabilities, so that nothing can"),
            std::string::npos);
}

Words as_nobody(Words words) {
  words.insert(words.begin(), {"setpriv", "--reuid", "65534", "--clear-groups"});
  return words;
}

bool nobody_may_run_braid() {
  return run_child(as_nobody({BRAID_COMMAND, "--help"})).exit_code == 0;
}

TEST(Run, AProgramWithCapabilitiesIsNamed) {
  if (geteuid() != 0) GTEST_SKIP() << "only root gives capabilities to a file";
  const OwnFolder folder("/tmp");
  fs::permissions(folder.path(), fs::perms(0755));
  const std::string program = folder.file("capable");
  fs::copy_file("/bin/true", program);
  if (!nobody_may_run_braid()) GTEST_SKIP() << "nobody else may enter braid's folder";
  const Words words = as_nobody({BRAID_COMMAND, "run", "--server", "h20x8", "--", program});
  EXPECT_EQ(run_child(words).errors, "");
  const vfs_cap_data net_raw{VFS_CAP_REVISION_2 | VFS_CAP_FLAGS_EFFECTIVE,
                             {{1U << CAP_NET_RAW, 0}}};
  if (setxattr(program.c_str(), "security.capability", &net_raw, XATTR_CAPS_SZ_2, 0) != 0)
    GTEST_SKIP() << "files have no capabilities there";
  EXPECT_NE(run_child(words).errors.find("has capabilities, so that nothing can be preloaded"),
            std::string::npos);
}

TEST(Run, AFolderThatTakesNoNewReportIsSaid) {
  const OwnFolder folder("/tmp");
  const fs::path file = folder.file("stats");
  std::ofstream{file};
  fs::permissions(file, fs::perms::all);
  ASSERT_EQ(chmod(folder.path().c_str(), 0555), 0);
  Words words{BRAID_COMMAND, "run", "--server", "h20x8", "--stats-file", file, "--", "true"};
  if (geteuid() == 0) {  // may write everywhere
    if (!nobody_may_run_braid()) GTEST_SKIP() << "nobody else may enter braid's folder";
    words = as_nobody(words);
  }
  expect_refusal(run_child(words), kRunFailed, {"cannot write '" + file.string(), "denied"});
  fs::permissions(folder.path(), fs::perms::owner_all);
}

// A driver that starts and has no GPU, as on the login node of a cluster.
TEST(Run, WithBestEffortADriverWithoutGpusIsForgivenWhateverIsAskedOfIt) {
  const Environment driver{{"LD_LIBRARY_PATH", BRAID_EMULATOR_FOLDER}};
  const Words program{"sh", "-c", "echo \"<$LD_PRELOAD>\"; exit 7"};
  for (const Words& options : std::vector<Words>{{"--lend", "all"}, {"--relays", "1,2"}}) {
    Words all{"--best-effort"};
    all.insert(all.end(), options.begin(), options.end());
    const ChildResult child = braid_run(all, program, driver);
    EXPECT_EQ(child.exit_code, 7) << child.errors;
    EXPECT_EQ(child.output, "<>\n");
    EXPECT_NE(child.errors.find("runs without braid"), std::string::npos) << child.errors;
    EXPECT_EQ(braid_run(options, program, driver).exit_code, kRunFailed);
  }
  expect_refusal(
      braid_run({"--best-effort", "--lend", "all", "--log", "/no/folder/log"}, program, driver),
      kRunFailed, {"/no/folder/log"});
}

TEST(Run, WithBestEffortGpusThatAreNotThereAreStillAMistake) {
  const Environment driver{{"LD_LIBRARY_PATH", BRAID_EMULATOR_FOLDER}, {"BRAID_SERVER", "h20x8"}};
  expect_refusal(braid_run({"--best-effort", "--lend", "9"}, {"true"}, driver), kRunFailed,
                 {"--lend: '9' is none of the 8 GPUs"});
  expect_refusal(braid_run({"--best-effort", "--relays", "8"}, {"true"}, driver), kRunFailed,
                 {"GPU 8"});
}

// As a launcher's worker is started: it has one GPU, and the relays are the others.
TEST(Run, LentGpusMayBeNamedAsRelays) {
  const Environment driver{{"LD_LIBRARY_PATH", BRAID_EMULATOR_FOLDER},
                           {"BRAID_SERVER", "h20x8"},
                           {"CUDA_VISIBLE_DEVICES", "3"}};
  const ChildResult child =
      braid_run({"--lend", "all", "--relays", "1,7"},
                {"sh", "-c", "echo $CUDA_VISIBLE_DEVICES $BRAID_RELAYS"}, driver);
  EXPECT_EQ(child.output, "3 1,7\n") << child.errors;
  expect_refusal(braid_run({"--lend", "all", "--relays", "8"}, {"true"}, driver), kRunFailed,
                 {"GPU 8", "8 GPUs"});
  const ChildResult twice = braid_run({"--lend", "2,2"}, {"sh", "-c", "echo $BRAID_LEND"}, driver);
  EXPECT_EQ(std::count(twice.output.begin(), twice.output.end(), ','), 0) << twice.output;
}

TEST(Run, TheLibrariesThatPythonIsToldOfAreKnown) {
  EXPECT_EQ(
      braid_run(
          kEmulated, {"true"},
          {{"BRAID_LIBRARY", "/x"}, {"BRAID_KV_LIBRARY", "/x"}, {"BRAID_TRANSFER_LIBRARY", "/x"}})
          .errors,
      "");
}

TEST(Run, AMisspeltVariableIsSaidAndTheProgramRuns) {
  const ChildResult child = braid_run(
      kEmulated, {"echo", "here"}, {{"BRAID_THREHSOLD", "4M"}, {"BRAID_EXPERIMENT", "slice=64K"}});
  EXPECT_EQ(child.output, "here\n");
  EXPECT_EQ(child.errors, "braid: there is no option BRAID_THREHSOLD. See docs/options.md\n");
}

TEST(Run, AMissingProgramIsSaid) {
  expect_refusal(braid_run({}, {"/no/such/program"}), 127, {"'/no/such/program'"});
  expect_refusal(braid_run(kEmulated, {"no-such-program"}), 127, {"'no-such-program'"});
  expect_refusal(braid_run(kEmulated, {"/no/such/program"}), 127, {"'/no/such/program'"});
  expect_refusal(braid_run(kEmulated, {"/etc/passwd"}), 126, {"'/etc/passwd'", "executable"});
  expect_refusal(braid_run(kEmulated, {"/tmp"}), 126, {"'/tmp'"});
  expect_refusal(braid_run(kEmulated, {}), kRunFailed, {"no program was given", "braid run -- "});
  expect_refusal(run_child({BRAID_COMMAND, "run", "./prog", "1"}), kRunFailed,
                 {"'./prog' stands before --", "Write: braid run -- ./prog 1"});
  expect_refusal(run_child({BRAID_COMMAND, "run", "early", "--", "true"}), kRunFailed,
                 {"'early' stands before --", "Leave it out"});
}

TEST(Run, AMachineWithoutADriverIsSaid) {
  if (dlopen("libcuda.so.1", RTLD_LAZY) != nullptr) GTEST_SKIP() << "this machine has a driver";
  expect_refusal(braid_run({}, {"true"}), kRunFailed,
                 {"no CUDA driver", "Install the NVIDIA driver", "--server h20x8"});
}

// An installation of which some parts are gone.
class BrokenInstallation : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(root_ / "bin");
    fs::create_directories(root_ / "lib" / "braid");
    fs::copy_file(BRAID_COMMAND, root_ / "bin" / "braid");
    fs::create_directories(root_ / "share" / "braid");
    fs::create_directory_symlink(BRAID_PROFILES, root_ / "share" / "braid" / "profiles");
  }

  ChildResult braid(Words words) {
    words.insert(words.begin(), root_ / "bin" / "braid");
    return run_child(words);
  }

  const OwnFolder folder_;
  const fs::path root_ = folder_.path();
};

// As in a bare chroot.
TEST(Run, WithoutProcItFindsItsOwnFiles) {
  const auto without_proc = [](const std::string& command) {
    return run_child({"unshare", "--mount", "sh", "-c",
                      "mount -t tmpfs none /proc || exit 77; " + command, BRAID_COMMAND});
  };
  const ChildResult child = without_proc(R"("$0" run --server h20x8 -- sh -c 'exit 3')");
  if (child.exit_code == 77 || child.errors.starts_with("unshare: "))
    GTEST_SKIP() << "needs root: " << child.errors;
  EXPECT_EQ(child.exit_code, 3) << child.errors;
  EXPECT_EQ(child.errors, "");
  const std::string inside =
      R"("$0" run --server h20x8 --stats text -- "$0" bench --server h20x8 --sizes 64K)";
  EXPECT_EQ(without_proc(inside).errors, "") << "no copy of it is braid's";
}

// For those who have a package, and those who have built it.
const std::string kReinstall = "Install braid's package again, or build all of it: make build";

TEST_F(BrokenInstallation, WithoutTheEmulatedDriverOrThePreloadLibraryNothingIsStarted) {
  expect_refusal(braid({"run", "--server", "h20x8", "--", "true"}), kRunFailed,
                 {"no emulated driver", kReinstall});
  fs::create_directory_symlink(BRAID_EMULATOR_FOLDER, root_ / "lib/braid/emulator");
  expect_refusal(braid({"run", "--server", "h20x8", "--", "true"}), kRunFailed,
                 {"no preload library", kReinstall});
}

TEST_F(BrokenInstallation, WithoutItsProfilesItSaysThatTheyAreMissing) {
  fs::create_directory_symlink(BRAID_EMULATOR_FOLDER, root_ / "lib/braid/emulator");
  fs::create_symlink(BRAID_PRELOAD_LIBRARY, root_ / "lib" / "libbraid_preload.so");
  fs::remove(root_ / "share" / "braid" / "profiles");
  for (const Words& words :
       {Words{"run", "--server", "h20x8", "--", "true"}, Words{"doctor", "--server", "h20x8"}}) {
    const ChildResult child = braid(words);
    EXPECT_NE(child.exit_code, 0);
    EXPECT_NE(child.errors.find("h20x8"), std::string::npos) << child.errors;
    EXPECT_NE(child.errors.find("missing from " + (root_ / "share/braid/profiles").string()),
              std::string::npos)
        << child.errors;
    EXPECT_EQ(child.errors.find("one of:"), std::string::npos) << child.errors;
  }
}

TEST_F(BrokenInstallation, WithBestEffortTheProgramRunsAllTheSame) {
  const ChildResult child =
      braid({"run", "--best-effort", "--server", "h20x8", "--", "sh", "-c", "exit 7"});
  EXPECT_EQ(child.exit_code, 7);
  EXPECT_NE(child.errors.find("no emulated driver"), std::string::npos) << child.errors;
  EXPECT_NE(child.errors.find("runs without braid"), std::string::npos) << child.errors;
}

TEST_F(BrokenInstallation, TheDoctorFindsThePreloadLibraryMissing) {
  fs::create_directory_symlink(BRAID_EMULATOR_FOLDER, root_ / "lib/braid/emulator");
  const ChildResult child = braid({"doctor", "--server", "h20x8"});
  EXPECT_EQ(child.exit_code, 1);
  EXPECT_NE(child.output.find("FAIL library"), std::string::npos) << child.output;
  EXPECT_NE(child.output.find(kReinstall), std::string::npos) << child.output;
}

TEST_F(BrokenInstallation, BestEffortForgivesNoMistakesOfTheUsers) {
  fs::create_directory_symlink(BRAID_EMULATOR_FOLDER, root_ / "lib/braid/emulator");
  fs::create_symlink(BRAID_PRELOAD_LIBRARY, root_ / "lib" / "libbraid_preload.so");
  expect_refusal(braid({"run", "--best-effort", "--server", "h20x9", "--", "true"}), kRunFailed,
                 {"h20x9"});
  expect_refusal(braid({"run", "--best-effort", "--threshold", "big", "--", "true"}), kRunFailed,
                 {"big"});
}

TEST(Help, AnUnknownCommandIsNamedWithThoseThereAre) {
  const ChildResult child = run_child({BRAID_COMMAND, "frobnicate", "--server", "h20x8"});
  EXPECT_EQ(child.exit_code, 1);
  EXPECT_TRUE(child.errors.starts_with("braid: 'frobnicate' is not a command")) << child.errors;
  for (const char* command : {"run", "compare", "bench", "topo", "doctor"})
    EXPECT_NE(child.errors.find(command), std::string::npos) << child.errors;
  EXPECT_EQ(child.errors.find("probe"), std::string::npos) << "hidden: " << child.errors;
}

TEST(Help, BraidAlonePrintsIt) {
  const ChildResult child = run_child({BRAID_COMMAND});
  EXPECT_EQ(child.exit_code, 0);
  EXPECT_EQ(child.output, run_child({BRAID_COMMAND, "--help"}).output);
}

TEST(Help, NamesEveryOption) {
  const ChildResult child = run_child({BRAID_COMMAND, "run", "--help"});
  EXPECT_EQ(child.exit_code, 0);
  EXPECT_NE(child.output.find("braid run [OPTIONS] -- PROGRAM [ARGUMENTS...]\n"), std::string::npos)
      << child.output;
  for (const char* option :
       {"--server", "--lend", "--relays", "--stats", "--stats-file", "--stats-signal", "--log",
        "--threshold", "--costs", "--opening", "--mover", "--pageable"})
    EXPECT_NE(child.output.find(option), std::string::npos) << option;
  for (const char* values : {"auto|kernel|copy-engine", "auto|SIZE", "all|none|LIST"})
    EXPECT_NE(child.output.find(values), std::string::npos) << child.output;
  EXPECT_EQ(child.output.find("TEXT"), std::string::npos) << child.output;
}

}  // namespace
}  // namespace braid::test
