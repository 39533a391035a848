// What validate() refuses, one broken server a case.
#include <gtest/gtest.h>

#include <functional>

#include "tests/topology/shipped.h"
#include "topology/server.h"

namespace braid::topology {
namespace {

Link& link_to(Server& server, const std::string& id) {
  for (Link& link : server.links)
    if (server.vertices[static_cast<size_t>(link.to)].id == id) return link;
  return server.links.front();
}

struct Case {
  const char* expected;  ///< part of the message
  std::function<void(Server&)> break_it;
};

TEST(Validate, AcceptsTheShippedServers) {
  for (const char* name : kShipped) EXPECT_TRUE(validate(shipped(name)).ok()) << name;
}

TEST(Validate, SaysWhatIsWrong) {
  const Case cases[] = {
      {"no GPU", [](Server& s) { s.gpus.clear(); }},
      {"no NUMA node",
       [](Server& s) {
         std::erase_if(s.vertices, [](const Vertex& v) { return v.kind == VertexKind::kNumaNode; });
       }},
      {"two vertices have the id 'gpu0'", [](Server& s) { s.vertices.back().id = "gpu0"; }},
      {"'gpu3' repeats the index 0", [](Server& s) { s.vertices.back().index = 0; }},
      {"a vertex has no id", [](Server& s) { s.vertices.back().id.clear(); }},
      {"numbered alike", [](Server& s) { s.vertices.front().index = 1; }},
      {"more GPU vertices than GPUs", [](Server& s) { s.gpus.pop_back(); }},
      {"link 0 ends at a vertex", [](Server& s) { s.links.front().to = 99; }},
      {"link 0 ends at a vertex", [](Server& s) { s.links.front().from = -1; }},
      {"the link gpu0 - gpu0 joins", [](Server& s) { link_to(s, "gpu0").from = s.gpus[0].vertex; }},
      {"the link numa0 - gpu0 joins",
       [](Server& s) { link_to(s, "gpu0").kind = LinkKind::kNvLink; }},
      {"the link numa0 - gpu0 is there twice",
       [](Server& s) { s.links.push_back(link_to(s, "gpu0")); }},
      {"the link numa0 - gpu1 needs a capacity above 0",
       [](Server& s) { link_to(s, "gpu1").forward_gbps.value = 0; }},
      {"the link numa0 - gpu1 needs a capacity above 0",
       [](Server& s) { link_to(s, "gpu1").backward_gbps.value = -1; }},
      {"negative limit", [](Server& s) { link_to(s, "gpu1").both_gbps.value = -1; }},
      {"gpu2 does not stand at its own vertex", [](Server& s) { s.gpus[2].vertex = 0; }},
      {"numa_distances: of 2 NUMA nodes, and the server has 1",
       [](Server& s) {
         s.numa_distances.value = {{0, 1}, {{10, 20}, {20, 10}}};
       }},
      {"numa_distances.value[0][0]: expected a number above 0, found 0",
       [](Server& s) {
         s.numa_distances.value = {{0}, {{0}}};
       }},
      {"gpu2 is near NUMA node 1", [](Server& s) { s.gpus[2].numa_node = 1; }},
      {"no links lead from memory0 to gpu0",
       [](Server& s) {
         std::erase_if(s.links, [](const Link& link) { return link.kind == LinkKind::kMemory; });
       }},
      {"no links lead from memory0 to gpu3",
       [](Server& s) {
         const int gpu3 = s.gpus[3].vertex;
         std::erase_if(s.links, [&](const Link& link) { return link.to == gpu3; });
       }},
  };
  for (const Case& broken : cases) {
    Server server = shipped("h200x4");
    broken.break_it(server);
    const Status status = validate(server);
    ASSERT_FALSE(status.ok()) << broken.expected;
    EXPECT_NE(status.message().find(broken.expected), std::string::npos)
        << "expected: " << broken.expected << "\nfound:    " << status.message();
  }
}

TEST(Validate, EveryNodesMemoryReachesEveryGpu) {
  Server server = shipped("h20x8");
  std::erase_if(server.links, [](const Link& link) { return link.kind == LinkKind::kSocket; });
  EXPECT_NE(validate(server).message().find("from memory1 to gpu0"), std::string::npos);
}

}  // namespace
}  // namespace braid::topology
