// Files of exported folders, of this process and of another one: every byte at its place, exact
// counts, and nothing outside of the folder.
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "tools/rail_sockets.h"
#include "transfer/owner.h"

namespace braid::transfer::test {
namespace {

namespace fs = std::filesystem;
using TransferCause = Transfer::Cause;
constexpr size_t kBytes = 8 << 20;

std::vector<std::byte> pattern(size_t size_bytes, uint64_t seed) {
  std::vector<std::byte> bytes(size_bytes);
  fill(bytes, seed);
  return bytes;
}

void write_file(const fs::path& path, const std::vector<std::byte>& bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<ptrdiff_t>(bytes.size()));
}

std::vector<std::byte> read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> text{std::istreambuf_iterator<char>(file), {}};
  std::vector<std::byte> bytes(text.size());
  std::transform(text.begin(), text.end(), bytes.begin(),
                 [](char letter) { return static_cast<std::byte>(letter); });
  return bytes;
}

class Folders : public testing::Test {
 protected:
  Folders() {
    fs::create_directories(root / "in" / "deep");
    fs::create_directories(root / "out");
    write_file(root / "in" / "model", pattern(kBytes + 777, 1));
    write_file(root / "secret", pattern(100, 2));
    fs::create_symlink(root / "secret", root / "in" / "way-out");
  }
  ~Folders() override { fs::remove_all(root); }

  std::vector<std::string> arguments(const std::string& provider) const {
    return {"provider=" + provider, "readable=" + (root / "in").string(),
            "writable=" + (root / "out").string()};
  }

  const fs::path root = fs::path(testing::TempDir()) / ("braid-files-" + std::to_string(getpid()));
};

class TransferFiles : public Folders, public testing::WithParamInterface<const char*> {
 protected:
  TransferFiles() : owner(arguments(GetParam())), me(owner, options(), 2 * kBytes) {}
  static Transfer::Options options() {
    Transfer::Options options;
    options.providers = {GetParam()};
    return options;
  }
  Result<Transfer::Segment> open(const std::string& path, Transfer::Rights wanted) {
    return me.transfer.open_file(me.segment, path, wanted, Initiator::kLimit);
  }

  Owner owner;
  Initiator me;
};

TEST_P(TransferFiles, AreReadAtEveryPlace) {
  const auto file = open("readable/model", {true, false}).value();
  EXPECT_EQ(me.transfer.file_bytes(file).value(), kBytes + 777);
  std::vector<Transfer::Request> requests;
  size_t at = 0;
  for (const size_t size : {1, 4096, 4097, 65536, 524'288, 524'289, 3'000'001}) {
    requests.push_back(me.read(at + 13, size, at));
    at += size;
  }
  requests.push_back(me.read(kBytes, 777, at));
  for (Transfer::Request& each : requests) each.segment = file;
  EXPECT_EQ(me.run(requests), std::vector(requests.size(), TransferCause::kDone));
  for (const Transfer::Request& each : requests)
    EXPECT_EQ(wrong_at({static_cast<std::byte*>(each.local), each.size_bytes}, 1, each.address),
              std::nullopt)
        << each.size_bytes;
}

/// Its owner alone sees how long the file system takes.
TEST_P(TransferFiles, OfAPeerAreSaidToBeAssumedByExplain) {
  Transfer::Request whole = me.read(0, kBytes);
  whole.segment =
      me.transfer.open_file(me.segment, "readable/model", {true, false}, Initiator::kLimit).value();
  EXPECT_EQ(me.run({whole}), std::vector{TransferCause::kDone});
  EXPECT_EQ(wrong_at({me.memory.data(), kBytes}, 1), std::nullopt);
  const std::string text = me.transfer.explain(whole, Transfer::Form::kText).value();
  EXPECT_NE(text.find("a file to host memory, assumed"), std::string::npos) << text;
  EXPECT_EQ(text.find("assumed", text.find("assumed") + 1), std::string::npos) << text;
}

TEST_P(TransferFiles, AreWrittenAndMade) {
  const auto file = open("writable/new", {true, true}).value();
  fill(me.memory, 3);
  std::vector<Transfer::Request> requests;
  for (const auto& [at, size] : std::vector<std::pair<size_t, size_t>>{
           {0, 4096}, {4096, 1 << 20}, {(1 << 20) + 4096, 700'001}, {1'752'673, 5}})
    requests.push_back(me.write(at, size, at));
  for (Transfer::Request& each : requests) each.segment = file;
  EXPECT_EQ(me.run(requests), std::vector(requests.size(), TransferCause::kDone));
  const std::vector<std::byte> written = read_file(root / "out" / "new");
  EXPECT_EQ(written.size(), 1'752'678u);
  EXPECT_EQ(wrong_at(written, 3), std::nullopt);
  Transfer::Request back = me.read(0, 1'752'678, kBytes);
  back.segment = file;
  EXPECT_EQ(me.run({back}), std::vector{TransferCause::kDone});
  EXPECT_EQ(wrong_at({me.memory.data() + kBytes, 1'752'678}, 3), std::nullopt);
}

TEST_P(TransferFiles, NothingOutsideOfTheFolderIsReachedAndEachBadRequestFailsAlone) {
  for (const char* path : {"readable/../secret", "readable/deep/../../secret", "readable/way-out",
                           "readable//etc/passwd", "readable", "readable/", "unknown/model",
                           "readable/nothing", "readable/deep"})
    EXPECT_FALSE(open(path, {true, false}).ok()) << path;
  EXPECT_FALSE(open("readable/model", {true, true}).ok());
  EXPECT_FALSE(open("readable/" + std::string(2000, 'x'), {true, false}).ok());
  const auto file = open("readable/model", {true, false}).value();
  Transfer::Request beyond = me.read(kBytes, 778), across = me.read(~uint64_t{0} - 8, 4),
                    written = me.write(0, 64), good = me.read(5, 64, 4096);
  for (Transfer::Request* each : {&beyond, &across, &written, &good}) each->segment = file;
  EXPECT_EQ(me.run({beyond, across, written, good}),
            (std::vector{TransferCause::kOutside, TransferCause::kOutside,
                         TransferCause::kNotAllowed, TransferCause::kDone}));
  EXPECT_EQ(wrong_at({me.memory.data() + 4096, 64}, 1, 5), std::nullopt);
  EXPECT_EQ(wrong_at(read_file(root / "in" / "model"), 1), std::nullopt);
}

/// As programs write them: a new file under another name, which then takes the old one's place.
TEST_P(TransferFiles, OneThatWasReplacedOrRemovedIsOpenedAsWhatLiesThereNow) {
  Transfer::Request whole = me.read(0, kBytes);
  whole.segment = open("readable/model", {true, false}).value();
  EXPECT_EQ(open("readable/model", {true, false}).ok(), true);
  write_file(root / "in" / "new", pattern(kBytes, 5));
  fs::rename(root / "in" / "new", root / "in" / "model");
  EXPECT_EQ(me.run({whole}), std::vector{TransferCause::kDone});
  EXPECT_EQ(wrong_at({me.memory.data(), kBytes}, 1), std::nullopt) << "it was opened before";
  whole.segment = open("readable/model", {true, false}).value();
  EXPECT_EQ(me.transfer.file_bytes(whole.segment).value(), kBytes);
  EXPECT_EQ(me.run({whole}), std::vector{TransferCause::kDone});
  EXPECT_EQ(wrong_at({me.memory.data(), kBytes}, 5), std::nullopt);
  for (uint64_t turn = 0; turn < 2; ++turn) {
    fill(me.memory, 6 + turn);
    Transfer::Request written = me.write(0, 5000);
    written.segment = open("writable/kv", {true, true}).value();
    EXPECT_EQ(me.run({written}), std::vector{TransferCause::kDone});
    ASSERT_TRUE(fs::exists(root / "out" / "kv")) << turn;
    EXPECT_EQ(wrong_at(read_file(root / "out" / "kv"), 6 + turn), std::nullopt);
    fs::remove(root / "out" / "kv");
  }
}

INSTANTIATE_TEST_SUITE_P(Providers, TransferFiles, testing::Values("tcp;ofi_rxm", "shm"),
                         [](const auto& provider) {
                           return std::string(provider.param).substr(0, 3);
                         });

class TransferFilesOfTwoRails : public Folders {};

TEST_F(TransferFilesOfTwoRails, RailsThatBreakFailNothing) {
  std::vector<std::string> all = arguments("tcp;ofi_rxm");
  all.insert(all.end(), {"address=127.0.0.1", "address=127.0.0.2"});
  Owner owner(all);
  Transfer::Options options;
  options.providers = {"tcp;ofi_rxm"};
  options.addresses = {"127.0.0.1", "127.0.0.2"};
  Initiator me(owner, options, 2 * kBytes);
  const auto file =
      me.transfer.open_file(me.segment, "writable/kv", {true, true}, Initiator::kLimit).value();
  int broken = 0;
  for (uint64_t turn = 0; turn < 4; ++turn) {
    fill(me.memory, 10 + turn);
    Transfer::Request whole = me.write(0, kBytes), back = me.read(0, kBytes, kBytes);
    whole.segment = back.segment = file;
    const Transfer::Batch batch = me.submit({whole});
    std::this_thread::sleep_for(std::chrono::milliseconds(turn));
    broken += tools::break_connections(turn % 2 == 0 ? "127.0.0.1" : "127.0.0.2");
    EXPECT_EQ(me.end(batch).front().cause, TransferCause::kDone) << turn;
    EXPECT_EQ(wrong_at(read_file(root / "out" / "kv"), 10 + turn), std::nullopt) << turn;
    const Transfer::Batch reading = me.submit({back});
    broken += tools::break_connections(turn % 2 == 0 ? "127.0.0.2" : "127.0.0.1");
    EXPECT_EQ(me.end(reading).front().cause, TransferCause::kDone) << turn;
    EXPECT_EQ(wrong_at({me.memory.data() + kBytes, kBytes}, 10 + turn), std::nullopt) << turn;
  }
  EXPECT_GT(broken, 0);
}

/// What is asked over a link that breaks is asked again.
TEST_F(TransferFilesOfTwoRails, AFileIsOpenedThoughTheRailsBreakMeanwhile) {
  std::vector<std::string> all = arguments("tcp;ofi_rxm");
  all.insert(all.end(), {"address=127.0.0.1", "address=127.0.0.2"});
  Owner owner(all);
  Transfer::Options options;
  options.providers = {"tcp;ofi_rxm"};
  options.addresses = {"127.0.0.1", "127.0.0.2"};
  Initiator me(owner, options, kBytes);
  int broken = 0;
  for (int turn = 0; turn < 3; ++turn) {
    owner.stop();
    std::thread opening([&] {
      const auto file = me.transfer.open_file(me.segment, "readable/model", {true, false}, 15s);
      EXPECT_TRUE(file.ok()) << file.status().message();
    });
    std::this_thread::sleep_for(50ms);
    for (const std::string& address : options.addresses)
      broken += tools::break_connections(address);
    owner.signal(SIGCONT);
    opening.join();
  }
  EXPECT_GT(broken, 0);
}

class TransferOwnFiles : public Folders {};

TEST_F(TransferOwnFiles, AreReadAndWrittenWithoutANetwork) {
  auto transfer = Transfer::open({}).value();
  ASSERT_TRUE(transfer.export_folder("store", (root / "out").string(), {true, true}).ok());
  const auto own = transfer.open_segment(transfer.name().value(), 10s).value();
  const auto file = transfer.open_file(own, "store/kv", {true, true}, 10s).value();
  const auto memory = transfer.allocate_memory(2 * kBytes, {}).value();
  auto* bytes = static_cast<std::byte*>(memory.memory);
  fill({bytes, kBytes}, 4);
  const auto run = [&](Transfer::Operation operation, std::byte* local, size_t size) {
    const auto batch = transfer.submit({{file, operation, local, 0, size}}).value();
    EXPECT_TRUE(transfer.wait(batch, 20s).value());
    return transfer.outcomes(batch).value().front().cause;
  };
  EXPECT_EQ(run(Transfer::Operation::kWrite, bytes, kBytes - 5), TransferCause::kDone);
  const std::vector<std::byte> written = read_file(root / "out" / "kv");
  EXPECT_EQ(written.size(), kBytes - 5);
  EXPECT_EQ(wrong_at(written, 4), std::nullopt);
  EXPECT_EQ(run(Transfer::Operation::kRead, bytes + kBytes, kBytes - 5), TransferCause::kDone);
  EXPECT_EQ(wrong_at({bytes + kBytes, kBytes - 5}, 4), std::nullopt);
  EXPECT_EQ(run(Transfer::Operation::kRead, bytes + kBytes, kBytes), TransferCause::kOutside);
  for (const uint64_t beyond : {uint64_t{kBytes}, uint64_t{1} << 62, uint64_t{1} << 63}) {
    const auto batch =
        transfer.submit({{file, Transfer::Operation::kRead, bytes, beyond, 10}}).value();
    EXPECT_TRUE(transfer.wait(batch, 20s).value());
    EXPECT_EQ(transfer.outcomes(batch).value().front().cause, TransferCause::kOutside) << beyond;
  }
}

/// The folder that peers may write is a file system of 64 KiB, in a mount namespace of this test's.
class TransferFullFolder : public Folders {
 protected:
  void SetUp() override {
    if (!is_apart() || mount("tmpfs", out.c_str(), "tmpfs", 0, "size=64k") != 0)
      GTEST_SKIP() << "this user may mount nothing";
  }
  void TearDown() override { umount2(out.c_str(), MNT_DETACH); }
  bool set_read_only(unsigned long flag) const {
    return mount(nullptr, out.c_str(), nullptr, MS_REMOUNT | flag, nullptr) == 0;
  }

  const std::string out = (root / "out").string();

 private:
  static bool is_apart() {
    return (unshare(CLONE_NEWNS) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0) &&
           mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
  }
};

TEST_F(TransferFullFolder, TellsItsPeersWhyItRefuses) {
  const Owner owner(arguments("tcp;ofi_rxm"));
  Transfer::Options options;
  options.providers = {"tcp;ofi_rxm"};
  Initiator me(owner, options, 1 << 20);
  const auto open = [&] {
    return me.transfer.open_file(me.segment, "writable/kv", {true, true}, Initiator::kLimit);
  };
  ASSERT_TRUE(set_read_only(MS_RDONLY));
  const Status refused = open().status();
  EXPECT_EQ(refused.message(), "file 'writable/kv': the owner's storage is read-only");
  EXPECT_EQ(Transfer::cause_of(refused), TransferCause::kReadOnly);
  ASSERT_TRUE(set_read_only(0));
  Transfer::Request write = me.write(0, 1 << 20);
  write.segment = open().value();
  EXPECT_EQ(me.run({write}), std::vector{TransferCause::kNoSpace});
  EXPECT_STREQ(Transfer::cause_name(TransferCause::kNoSpace),
               "no space is left on the owner's storage, or of its quota");
}

/// Where the kernel would end the process that writes.
TEST_F(TransferOwnFiles, BeyondTheLimitOfFilesAWriteIsAnErrorAndNoMore) {
  auto transfer = Transfer::open({}).value();
  ASSERT_TRUE(transfer.export_folder("store", (root / "out").string(), {true, true}).ok());
  const auto own = transfer.open_segment(transfer.name().value(), 10s).value();
  const auto file = transfer.open_file(own, "store/kv", {true, true}, 10s).value();
  const auto memory = transfer.allocate_memory(kBytes, {}).value();
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit small{1 << 20, limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto write = [&](uint64_t at, size_t size) {
    const Transfer::Request one{file, Transfer::Operation::kWrite, memory.memory, at, size};
    const auto batch = transfer.submit({one}).value();
    EXPECT_TRUE(transfer.wait(batch, 20s).value());
    return transfer.outcomes(batch).value().front().cause;
  };
  EXPECT_EQ(write(1 << 20, 4096), TransferCause::kFileError);
  EXPECT_EQ(write((1 << 20) - 4096, 4097), TransferCause::kFileError);
  EXPECT_EQ(write((1 << 20) - 4096, 4096), TransferCause::kDone);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

}  // namespace
}  // namespace braid::transfer::test
