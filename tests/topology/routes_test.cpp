// Routes and paths on the shipped servers.
#include <gtest/gtest.h>

#include "topology/profile.h"
#include "topology/server.h"

namespace braid::topology {
namespace {

Server shipped(const std::string& name) {
  auto server = load_profile(std::string(BRAID_PROFILES) + "/" + name + ".json");
  EXPECT_TRUE(server.ok()) << server.status().message();
  return server.ok() ? std::move(server).value() : Server();
}

// "memory0 numa0 switch0 gpu1": the vertices that a way visits.
std::string visits(const Server& server, const std::vector<Hop>& hops) {
  std::string text;
  for (const Hop& hop : hops) {
    const Link& link = server.links[static_cast<size_t>(hop.link)];
    const int from = hop.forward ? link.from : link.to;
    const int to = hop.forward ? link.to : link.from;
    if (text.empty()) text = server.vertices[static_cast<size_t>(from)].id;
    text += " " + server.vertices[static_cast<size_t>(to)].id;
  }
  return text;
}

TEST(Routes, HostToGpuOnTheSameAndOnTheOtherSocket) {
  const Server server = shipped("h20x8");
  EXPECT_EQ(visits(server, host_route(server, 0, 1, true)), "memory0 numa0 switch0 gpu1");
  EXPECT_EQ(visits(server, host_route(server, 0, 7, true)), "memory0 numa0 numa1 switch3 gpu7");
  EXPECT_EQ(visits(server, host_route(server, 1, 0, true)), "memory1 numa1 numa0 switch0 gpu0");
}

TEST(Routes, TheWayBackIsTheSameWayReversed) {
  const Server server = shipped("h20x8");
  EXPECT_EQ(visits(server, host_route(server, 0, 7, false)), "gpu7 switch3 numa1 numa0 memory0");
  for (const Hop& hop : host_route(server, 0, 7, false)) EXPECT_FALSE(hop.forward);
}

TEST(Routes, PeersUseNvlinkAndOtherwisePcie) {
  Server server = shipped("h20x8");
  EXPECT_TRUE(server.has_nvlink(0, 7));
  EXPECT_FALSE(server.has_nvlink(3, 3));
  EXPECT_EQ(visits(server, peer_route(server, 2, 7)), "gpu2 nvswitch0 gpu7");
  std::erase_if(server.links, [](const Link& link) { return link.kind == LinkKind::kNvLink; });
  EXPECT_FALSE(server.has_nvlink(0, 7));
  EXPECT_EQ(visits(server, peer_route(server, 0, 1)), "gpu0 switch0 gpu1");
  EXPECT_EQ(visits(server, peer_route(server, 2, 7)), "gpu2 switch1 numa0 numa1 switch3 gpu7");
}

TEST(Routes, NvlinkDoesNotPassThroughAThirdGpu) {
  Server server = shipped("h200x4");
  std::erase_if(server.links, [](const Link& link) { return link.kind == LinkKind::kNvLink; });
  Link bridge = server.links.back();
  bridge.kind = LinkKind::kNvLink;
  bridge.from = server.gpus[0].vertex;
  bridge.to = server.gpus[1].vertex;
  server.links.push_back(bridge);
  bridge.from = server.gpus[1].vertex;
  bridge.to = server.gpus[2].vertex;
  server.links.push_back(bridge);
  ASSERT_TRUE(validate(server).ok()) << validate(server).message();
  EXPECT_TRUE(server.has_nvlink(1, 0));
  EXPECT_FALSE(server.has_nvlink(0, 2));
  EXPECT_EQ(visits(server, peer_route(server, 0, 2)), "gpu0 numa0 gpu2");
}

TEST(Routes, GpusAndNodesThatDoNotExistHaveNone) {
  const Server server = shipped("h200x4");
  EXPECT_TRUE(host_route(server, 0, 4, true).empty());
  EXPECT_TRUE(host_route(server, 1, 0, true).empty());
  EXPECT_TRUE(host_route(server, 0, -1, true).empty());
  EXPECT_TRUE(peer_route(server, 0, 9).empty());
  EXPECT_TRUE(peer_route(server, 0, 0).empty());
  EXPECT_TRUE(paths_to(server, 4, 0).empty());
}

TEST(Paths, DirectThenTheSameSocketThenTheOther) {
  const Server server = shipped("h20x8");
  const std::vector<Path> paths = paths_to(server, 2, 0);
  ASSERT_EQ(paths.size(), 8u);
  std::vector<int> relays;
  for (const Path& path : paths) relays.push_back(path.relay);
  EXPECT_EQ(relays, (std::vector<int>{-1, 0, 1, 3, 4, 5, 6, 7}));
  for (size_t i = 0; i < paths.size(); ++i) {
    EXPECT_EQ(paths[i].target, 2);
    EXPECT_EQ(paths[i].gbps, 53) << i;
    EXPECT_EQ(paths[i].crosses_socket, i >= 4) << i;
  }
  EXPECT_EQ(visits(server, paths[4].hops), "memory0 numa0 numa1 switch2 gpu4 nvswitch0 gpu2");
}

TEST(Paths, ADirectPathAcrossSocketsStaysFirst) {
  const Server server = shipped("h20x8");
  const std::vector<Path> paths = paths_to(server, 5, 0);
  EXPECT_EQ(paths[0].relay, -1);
  EXPECT_TRUE(paths[0].crosses_socket);
  EXPECT_EQ(paths[1].relay, 0);
  EXPECT_FALSE(paths[1].crosses_socket);
}

TEST(Paths, WithoutNvlinkThereIsOnlyTheDirectOne) {
  Server server = shipped("h200x4");
  EXPECT_EQ(paths_to(server, 0, 0).size(), 4u);
  std::erase_if(server.links, [](const Link& link) { return link.kind == LinkKind::kNvLink; });
  EXPECT_EQ(paths_to(server, 0, 0).size(), 1u);
}

TEST(Paths, TheNarrowestLinkDecides) {
  Server server = shipped("h20x8");
  for (Link& link : server.links)
    if (link.kind == LinkKind::kSocket) link.forward_gbps.value = 20;
  const std::vector<Path> paths = paths_to(server, 0, 0);
  EXPECT_EQ(paths[1].gbps, 53);
  EXPECT_EQ(paths[7].gbps, 20);
}

}  // namespace
}  // namespace braid::topology
