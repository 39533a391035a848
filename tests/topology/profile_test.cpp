// Well-formed profiles: what is read is what was written, and every figure has a source.
#include "topology/profile.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/topology/four_nodes.h"
#include "tests/topology/shipped.h"

namespace braid::topology {
namespace {

using Json = nlohmann::ordered_json;

const Link* find_link(const Server& server, const std::string& from, const std::string& to) {
  for (const Link& link : server.links)
    if (server.vertices[static_cast<size_t>(link.from)].id == from &&
        server.vertices[static_cast<size_t>(link.to)].id == to)
      return &link;
  return nullptr;
}

TEST(Profile, H200x4HoldsTheMeasurements) {
  const Server server = shipped("h200x4");
  EXPECT_EQ(server.name, "h200x4");
  EXPECT_EQ(server.numa_node_count(), 1);
  ASSERT_EQ(server.gpus.size(), 4u);
  EXPECT_EQ(server.gpus[3].name, "NVIDIA H200");
  EXPECT_EQ(server.gpus[3].sm_count.value, 132);
  EXPECT_EQ(server.gpus[3].compute.value.major, 9);
  EXPECT_EQ(server.gpus[3].compute.value.minor, 0);
  const Link* memory = find_link(server, "memory0", "numa0");
  const Link* pcie = find_link(server, "numa0", "gpu2");
  const Link* nvlink = find_link(server, "gpu2", "nvswitch0");
  ASSERT_TRUE(memory && pcie && nvlink);
  EXPECT_EQ(memory->forward_gbps.value, 219.4);
  EXPECT_EQ(memory->backward_gbps.value, 162.8);
  EXPECT_EQ(memory->both_gbps.value, 207.6);
  EXPECT_EQ(pcie->forward_gbps.value, 55.6);
  EXPECT_EQ(pcie->backward_gbps.value, 55.4);
  EXPECT_EQ(pcie->both_gbps.value, 101.7);
  EXPECT_EQ(nvlink->forward_gbps.value, 396);
  EXPECT_EQ(nvlink->both_gbps.value, 0);
  EXPECT_EQ(server.kernel.host_read_gbps.value, 51.4);
  EXPECT_EQ(server.costs.wait_value_us.value, 6.5);
}

TEST(Profile, H20x8IsTwoSocketsOfFour) {
  const Server server = shipped("h20x8");
  ASSERT_EQ(server.gpus.size(), 8u);
  EXPECT_EQ(server.numa_node_count(), 2);
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(server.gpus[i].numa_node, static_cast<int>(i / 4));
  EXPECT_EQ(server.gpus[0].memory_bytes.value, uint64_t{96} << 30);
  EXPECT_EQ(server.gpus[0].sm_count.value, 78);
  const Link* socket = find_link(server, "numa0", "numa1");
  ASSERT_TRUE(socket);
  EXPECT_EQ(socket->forward_gbps.value, 80);
  EXPECT_NE(socket->forward_gbps.source.find("sixth path"), std::string::npos);
  EXPECT_EQ(find_link(server, "switch3", "gpu7")->forward_gbps.value, 53);
}

// Every number in the file, structure aside, is the value of an object that has a source.
void expect_sources(const Json& at, const std::string& path) {
  if (at.is_object() && at.contains("value")) {
    EXPECT_GT(at.value("source", "").size(), 8u) << path;
    return;
  }
  if (at.is_number()) {
    const std::string key = path.substr(path.rfind('/') + 1);
    EXPECT_TRUE(key == "numa_nodes" || key == "numa_node" || key == "pcie_switches" ||
                key == "nvswitches")
        << path << " is a number without a source";
  }
  if (at.is_structured())
    for (const auto& [key, value] : at.items()) expect_sources(value, path + "/" + key);
}

TEST(Profile, EveryFigureOfAShippedProfileHasASource) {
  for (const char* name : kShipped) expect_sources(Json::parse(shipped_text(name)), name);
}

void expect_documented(const Json& at, const std::string& page) {
  if (at.is_object() && at.contains("value")) return;
  if (at.is_object()) {
    for (const auto& [key, value] : at.items())
      EXPECT_NE(page.find("`" + key + "`"), std::string::npos)
          << key << " is not in docs/profiles.md";
  }
  if (at.is_structured())
    for (const auto& [key, value] : at.items()) expect_documented(value, page);
}

TEST(Profile, EveryKeyIsDocumented) {
  std::ifstream file(BRAID_PROFILES "/../docs/profiles.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  for (const char* name : kShipped) expect_documented(Json::parse(shipped_text(name)), page);
}

TEST(Profile, WrittenAndReadBackIsTheSame) {
  for (const char* name : kShipped) {
    const std::string written = write_profile(shipped(name));
    EXPECT_EQ(Json::parse(written), Json::parse(shipped_text(name))) << name;
    const auto again = parse_profile(written, name);
    ASSERT_TRUE(again.ok()) << again.status().message();
    EXPECT_EQ(write_profile(again.value()), written);
  }
}

TEST(Profile, OneGpuMayDifferFromTheModel) {
  Json json = Json::parse(shipped_text("h200x4"));
  json["gpus"][2]["name"] = "NVIDIA H100";
  json["gpus"][2]["memory_gib"] = {{"value", 79.5}, {"source", "seen"}};
  const auto server = parse_profile(json.dump(), "mixed.json");
  ASSERT_TRUE(server.ok()) << server.status().message();
  EXPECT_EQ(server.value().gpus[2].name, "NVIDIA H100");
  EXPECT_EQ(server.value().gpus[2].memory_bytes.value, uint64_t{159} << 29);
  EXPECT_EQ(server.value().gpus[2].sm_count.value, 132);
  EXPECT_EQ(server.value().gpus[3].name, "NVIDIA H200");
  EXPECT_EQ(Json::parse(write_profile(server.value())), json);
}

TEST(Profile, DistancesOfNumaNodesAreKept) {
  const auto server = parse_profile(four_nodes().dump(), "four.json");
  ASSERT_TRUE(server.ok()) << server.status().message();
  const NumaDistances& distances = server.value().numa_distances.value;
  EXPECT_EQ(distances.between(0, 1), 12);
  EXPECT_EQ(distances.between(1, 2), 32);
  EXPECT_EQ(distances.between(3, 3), 10);
  EXPECT_EQ(distances.between(0, 4), std::nullopt);
  EXPECT_EQ(nlohmann::json::parse(write_profile(server.value())),
            nlohmann::json::parse(four_nodes().dump()));
  EXPECT_EQ(shipped("h20x8").numa_distances.value.between(0, 1), std::nullopt) << "it has none";
}

TEST(Profile, FaultsAreKept) {
  Json json = Json::parse(shipped_text("h200x4"));
  json["faults"] = {{"calls", {{{"name", "cuInit"}, {"nth", 7}, {"error", "CUDA_ERROR_UNKNOWN"}}}},
                    {"busy", {{{"gpu", 3}, {"from_us", 0}, {"to_us", 1e6}}}},
                    {"contexts_fail_alone", true}};
  const auto server = parse_profile(json.dump(), "faults.json");
  ASSERT_TRUE(server.ok()) << server.status().message();
  EXPECT_EQ(Json::parse(server.value().faults_json), json["faults"]);
  EXPECT_EQ(Json::parse(write_profile(server.value())), json);
  EXPECT_EQ(shipped("h200x4").faults_json, "");
}

TEST(Profile, AServerWithoutCostsIsWrittenWithoutThem) {
  Server server = shipped("h200x4");
  server.costs = {};
  const auto read = parse_profile(write_profile(server), "mine.json");
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.status().message(), "mine.json: costs: missing");
}

TEST(Profile, AFileThatIsNotThereOrNotAFileIsNamed) {
  const auto missing = load_profile("/no/such/server.json");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.status().message(),
            "/no/such/server.json: cannot be read: No such file or directory");
  const auto folder = load_profile("/tmp");
  ASSERT_FALSE(folder.ok());
  EXPECT_EQ(folder.status().message(), "/tmp: is a folder. Name a JSON file");
}

}  // namespace
}  // namespace braid::topology
