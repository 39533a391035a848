// The file that keeps a server's costs: what is written comes back, and everything else is refused
// by name.
#include "multipath/cost_file.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "support/server.h"

namespace braid::multipath {
namespace {

namespace fs = std::filesystem;

class CostFileTest : public test::ServerTest {
 protected:
  void SetUp() override {
    fs::remove_all(folder_);
    ServerTest::SetUp();
    fs::create_directories(folder_);
  }
  ~CostFileTest() override { fs::remove_all(folder_); }

  static CostFile some_file(const std::string& server) {
    CostFile file{server, 1234567890, default_costs()};
    file.costs.of(Direction::kDeviceToHost).kernel_start_us = 12.5;
    DirectionCosts& never = file.costs.of(Direction::kHostToDevice);
    never.kernel_start_us = never.engine_start_us = never.engine_staged_start_us = 1e6;
    return file;
  }

  Options with_cache() const {
    Options options;
    options.cache_folder = folder_;
    return options;
  }

  std::string in_folder() const { return folder_ + "/costs.json"; }
  void write(const std::string& text) const {
    fs::create_directories(folder_);
    std::ofstream(in_folder()) << text;
  }
  std::string text_of(const std::string& path) const {
    std::ifstream stream(path);
    return {std::istreambuf_iterator<char>(stream), {}};
  }

  const std::string folder_ =
      (fs::path(::testing::TempDir()) / ("cost_file_test_" + std::to_string(getpid()))).string();
};

TEST_F(CostFileTest, WhatIsWrittenComesBack) {
  const CostFile file = some_file("4x-a");
  ASSERT_TRUE(write_cost_file(folder_ + "/costs.json", file).ok());
  const auto read = read_cost_file(folder_ + "/costs.json");
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read.value().server, "4x-a");
  EXPECT_EQ(read.value().measured_at_s, 1234567890);
  EXPECT_EQ(read.value().costs, file.costs);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1) << "no draft left";
}

TEST_F(CostFileTest, AFolderIsNoFile) {
  const auto read = read_cost_file("/tmp");
  ASSERT_FALSE(read.ok());
  EXPECT_NE(read.status().message().find("/tmp: is a folder"), std::string::npos);
}

TEST_F(CostFileTest, AFolderThatCannotBeWrittenIsNamed) {
  const Status status = write_cost_file("/proc/no/costs.json", some_file("4x-a"));
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find("/proc/no/costs.json"), std::string::npos);
}

TEST_F(CostFileTest, EachMistakeIsNamedWithTheRemedy) {
  ASSERT_TRUE(write_cost_file(in_folder(), some_file("4x-a")).ok());
  const std::string right = text_of(in_folder());
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = right;
    return text.replace(text.find(from), from.size(), to);
  };
  const std::pair<std::string, std::string> mistakes[] = {
      {"", "not JSON"},
      {"[]", "expected an object"},
      {right.substr(0, right.size() / 2), "not JSON"},
      {with("\"server\": \"4x-a\"", "\"server\": 4"), "server"},
      {with("1234567890", "\"yesterday\""), "measured_at_s"},
      {with("native_start_us", "native_start"), "host_to_device.native_start"},
      {with("5.4", "-5.4"), "host_to_device.native_start_us"},
      {with("55500.0", "0"), "host_to_device.native_bytes_per_us"},
      {with("5.4", "1e300"), "host_to_device.native_start_us"},
      {with("55500.0", "1e-300"), "host_to_device.native_bytes_per_us"},
  };
  for (const auto& [text, what] : mistakes) {
    write(text);
    const auto read = read_cost_file(in_folder());
    ASSERT_FALSE(read.ok()) << text;
    for (const std::string& part : {in_folder(), what, std::string("braid tune")})
      EXPECT_NE(read.status().message().find(part), std::string::npos) << read.status().message();
  }
}

TEST_F(CostFileTest, TheServersOwnFileIsFoundAndUsed) {
  const std::string server = server_key(driver()).value();
  EXPECT_EQ(load_costs(driver(), with_cache()).path, "") << "none is there";
  const std::string path = cost_file_path(with_cache(), server);
  EXPECT_EQ(path, folder_ + "/braid/" + server + ".json");
  fs::create_directories(fs::path(path).parent_path());
  ASSERT_TRUE(write_cost_file(path, some_file(server)).ok());
  const LoadedCosts loaded = load_costs(driver(), with_cache());
  EXPECT_EQ(loaded.path, path);
  EXPECT_EQ(loaded.measured_at_s, 1234567890);

  constexpr uint64_t kSize = 32 << 20;
  test::HostBuffer host(driver(), kSize);
  test::DeviceBuffer device(driver(), kSize);
  const CUstream stream = new_stream();
  const auto verdict = [&](const Options& options, Direction direction) {
    auto engine = open_engine(options);
    const Verdict outcome = engine->submit({direction, host.data(), device.at(), kSize, stream});
    synchronize(stream);
    return outcome;
  };
  EXPECT_EQ(verdict(with_cache(), Direction::kHostToDevice), Verdict::kBelowThreshold)
      << "the file says that nothing ever pays there";
  EXPECT_EQ(verdict(with_cache(), Direction::kDeviceToHost), Verdict::kAccelerated);
  Options without = with_cache();
  without.costs = "none";
  EXPECT_EQ(verdict(without, Direction::kHostToDevice), Verdict::kAccelerated);
}

TEST_F(CostFileTest, AnotherServersFileIsSaidAndNotUsed) {
  ASSERT_TRUE(write_cost_file(in_folder(), some_file("4x-another")).ok());
  Options options;
  options.costs = in_folder();
  const LoadedCosts loaded = load_costs(driver(), options);
  EXPECT_EQ(loaded.costs, default_costs());
  EXPECT_NE(loaded.problem.message().find("4x-another"), std::string::npos);
  auto engine = open_engine(options);
  ASSERT_EQ(engine->problems().size(), 1u);
  EXPECT_NE(engine->problems()[0].find(in_folder()), std::string::npos);
  EXPECT_NE(engine->problems()[0].find("braid tune"), std::string::npos);
}

TEST_F(CostFileTest, AFileThatTheUserNamedMustBeThere) {
  Options options;
  options.costs = "/no/such/costs.json";
  EXPECT_NE(load_costs(driver(), options).problem.message().find(options.costs), std::string::npos);
}

}  // namespace
}  // namespace braid::multipath
