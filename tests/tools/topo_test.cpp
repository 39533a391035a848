// `braid topo`, as a person runs it: the built command, its output and its exit code.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace {

using Json = nlohmann::json;

struct Outcome {
  int exit_code = -1;
  std::string out;
  std::string err;
};

std::string read_all(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// `environment` goes before the command: "LD_LIBRARY_PATH=/x".
Outcome braid(const std::string& arguments, const std::string& environment = "") {
  const std::string base = testing::TempDir() + "braid_topo_" + std::to_string(getpid());
  const std::string command = environment + " '" BRAID_COMMAND "' " + arguments + " >'" + base +
                              ".out' 2>'" + base + ".err' </dev/null";
  const int status = std::system(command.c_str());
  Outcome outcome{WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_all(base + ".out"),
                  read_all(base + ".err")};
  std::filesystem::remove(base + ".out");
  std::filesystem::remove(base + ".err");
  return outcome;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Topo, ShowsTheServerItsLinksAndPaths) {
  const Outcome topo = braid("topo --server h20x8");
  EXPECT_EQ(topo.exit_code, 0);
  EXPECT_EQ(topo.err, "");
  EXPECT_EQ(topo.out.find("h20x8: 8 NVIDIA H20 on two sockets"), 0u);
  EXPECT_TRUE(has(topo.out, "  gpu7  NVIDIA H20  0000:b4:00.0  numa1"));
  EXPECT_TRUE(has(topo.out, "  socket  numa0    numa1       80.0 [6]    80.0 [6]\n"));
  EXPECT_TRUE(has(topo.out,
                  "  gpu6     53.0  crosses  memory0 > numa0 > numa1 > switch3 > gpu6 > "
                  "nvswitch0 > gpu2\n"));
  EXPECT_TRUE(has(topo.out, "the sixth path, the second across sockets, is the last to add"));
}

TEST(Topo, PathsStartAtTheMemoryNearTheTarget) {
  const Outcome topo = braid("topo --server h20x8");
  const size_t at = topo.out.find("Paths from memory1 to gpu5");
  ASSERT_NE(at, std::string::npos);
  const std::string block = topo.out.substr(at, topo.out.find("\n\n", at) - at);
  EXPECT_TRUE(has(block, "  direct   53.0           memory1 > numa1 > switch2 > gpu5\n")) << block;
  EXPECT_LT(block.find("gpu4     53.0 "), block.find("gpu0     53.0  crosses")) << block;
}

TEST(Topo, JsonHoldsTheSameFacts) {
  const Outcome topo = braid("topo --server h200x4 --json");
  ASSERT_EQ(topo.exit_code, 0);
  const Json json = Json::parse(topo.out, nullptr, false);
  ASSERT_FALSE(json.is_discarded());
  ASSERT_EQ(json["paths"].size(), 16u);
  EXPECT_EQ(json["paths"][0]["target"], 0);
  EXPECT_TRUE(json["paths"][0]["relay"].is_null());
  EXPECT_EQ(json["paths"][1]["relay"], 1);
  EXPECT_EQ(json["paths"][1]["narrowest_gbps"], 55.6);
  EXPECT_EQ(json["paths"][1]["crosses_socket"], false);
  EXPECT_EQ(json["paths"][1]["way"], (Json{"memory0", "numa0", "gpu1", "nvswitch0", "gpu0"}));
  EXPECT_EQ(json["server"]["links"][0]["forward_gbps"]["value"], 219.4);
}

TEST(Topo, TheJsonsServerIsAProfile) {
  const Json json = Json::parse(braid("topo --server h20x8 --json").out);
  const std::string path = testing::TempDir() + "mine_" + std::to_string(getpid()) + ".json";
  std::ofstream(path) << json["server"];
  const Outcome again = braid("topo --json --server '" + path + "'");
  std::filesystem::remove(path);
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(Json::parse(again.out), json);
}

TEST(Topo, AnUnknownProfileIsNamedWithTheKnownOnes) {
  const Outcome topo = braid("topo --server h30x8");
  EXPECT_NE(topo.exit_code, 0);
  EXPECT_EQ(topo.out, "");
  EXPECT_TRUE(has(topo.err, "'h30x8'")) << topo.err;
  EXPECT_TRUE(has(topo.err, "h200x4, h20x8")) << topo.err;
}

TEST(Topo, AMalformedProfileIsNamedWithTheKey) {
  const std::string path = testing::TempDir() + "bad_" + std::to_string(getpid()) + ".json";
  std::ofstream(path) << R"({"name": "bad", "gpu": 8})";
  const Outcome topo = braid("topo --server '" + path + "'");
  std::filesystem::remove(path);
  EXPECT_NE(topo.exit_code, 0);
  const std::string said = "braid: " + path + ": gpu: unknown key. The known ones are name, ";
  EXPECT_TRUE(topo.err.starts_with(said)) << topo.err;
}

// A library of that name that is no driver stands for a machine that has none, wherever this runs.
TEST(Topo, AMachineWithoutADriverIsToldTheRemedy) {
  const std::string folder = testing::TempDir() + "no_driver_" + std::to_string(getpid());
  std::filesystem::create_directory(folder);
  std::ofstream(folder + "/libcuda.so.1") << "not a library";
  const Outcome topo = braid("topo", "LD_LIBRARY_PATH='" + folder + "'");
  std::filesystem::remove_all(folder);
  EXPECT_NE(topo.exit_code, 0);
  EXPECT_EQ(topo.out, "");
  EXPECT_TRUE(has(topo.err, "no CUDA driver")) << topo.err;
  EXPECT_TRUE(has(topo.err, "--server h20x8")) << topo.err;
}

TEST(Topo, NicsAreShownWithoutAGpu) {
  const Outcome text = braid("topo --nics");
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_TRUE(has(text.out, "  lo ")) << text.out;
  EXPECT_TRUE(has(text.out, "127.0.0.1")) << text.out;
  const Json json = Json::parse(braid("topo --nics --json").out);
  bool has_loopback = false;
  for (const Json& nic : json["nics"])
    if (nic["name"] == "lo")
      has_loopback = nic["state"] == "up" && nic["addresses"][0] == "127.0.0.1";
  EXPECT_TRUE(has_loopback) << json;
}

TEST(Topo, TheNicsOfThisHostAreNotThoseOfAServer) {
  const Outcome both = braid("topo --nics --server h20x8");
  EXPECT_EQ(both.exit_code, 1);
  EXPECT_EQ(both.out, "");
  EXPECT_TRUE(has(both.err, "--server excludes --nics")) << both.err;
}

TEST(Topo, NicsOfAServerAreShownWithTheGpusThatTheyAreNear) {
  Json profile = Json::parse(braid("topo --server h20x8 --json").out)["server"];
  profile["nics"] = Json::array({{{"name", "mlx5_0"},
                                  {"pci_bus_id", "0000:1a:00.0"},
                                  {"numa_node", 0},
                                  {"pcie_switch", "switch1"},
                                  {"link_gbps", {{"value", 50}, {"source", "a test's"}}}}});
  const std::string path = testing::TempDir() + "nics_" + std::to_string(getpid()) + ".json";
  std::ofstream(path) << profile;
  const Outcome text = braid("topo --server '" + path + "'");
  const Json json = Json::parse(braid("topo --json --server '" + path + "'").out);
  std::filesystem::remove(path);
  EXPECT_TRUE(has(text.out, "gpu2 gpu3 by switch1, gpu0 gpu1 by numa0")) << text.out << text.err;
  EXPECT_EQ(json["near_nics"][2]["same_switch"], Json{"mlx5_0"});
  EXPECT_EQ(json["near_nics"][0]["same_numa_node"], Json{"mlx5_0"});
  EXPECT_EQ(json["near_nics"][4]["same_numa_node"], Json::array());
}

TEST(Topo, HelpNamesTheOptions) {
  const Outcome topo = braid("topo --help");
  EXPECT_EQ(topo.exit_code, 0);
  EXPECT_TRUE(has(topo.out, "--server PROFILE"));
  EXPECT_TRUE(has(topo.out, "--json"));
}

}  // namespace
