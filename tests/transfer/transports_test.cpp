// Which chains of hops lead from one end of a request to the other, and what carries each.
#include "transfer/transports.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "transfer/providers.h"

namespace braid::transfer {
namespace {

const Endpoint kHost{}, kGpu{{true, 0, -1, 0}}, kOtherGpu{{true, 0, -1, 1}}, kFile{{}, 1, true},
    kLater{{}, ~uint64_t{0}, false, false}, kMapping{{}, ~uint64_t{0}, false, true, true};
const Links kSelf{true};
constexpr const char* kShm = "shm";
constexpr const char* kTcp = "tcp";

const char* name(HopKind kind) {
  switch (kind) {
    case HopKind::kNvLink: return "nvlink";
    case HopKind::kCopy: return "copy";
    case HopKind::kMemory: return "memory";
    case HopKind::kFile: return "file";
    case HopKind::kMapped: return "mapped";
    case HopKind::kRail: return "rail";
  }
  return "?";
}

/// "0: file copy by file through host", the best first.
std::vector<std::string> chains(const Ends& ends, const Links& links) {
  std::vector<std::string> all;
  for (const Transport& each : transports_between(ends, links)) {
    std::string text = std::to_string(each.rank) + ":";
    for (const Hop& hop : each.hops) text += std::string(" ") + name(hop.kind);
    text += std::string(" by ") + (each.provider.empty() ? name(each.carrier) : each.provider) +
            (each.is_through_host ? " through host" : "");
    all.push_back(text);
  }
  return all;
}
using Chains = std::vector<std::string>;

Ends read(const Endpoint& here, const Endpoint& there) { return {Operation::kRead, here, there}; }
Ends write(const Endpoint& here, const Endpoint& there) { return {Operation::kWrite, here, there}; }

TEST(Transports, WithinAProcessAreThoseOfItsBackends) {
  EXPECT_EQ(chains(read(kHost, kHost), kSelf), Chains{"0: memory by memory"});
  EXPECT_EQ(chains(read(kHost, kFile), kSelf), Chains{"0: file by file"});
  EXPECT_EQ(chains(write(kHost, kGpu), kSelf), Chains{"0: copy by copy"});
  EXPECT_EQ(chains(read(kGpu, kOtherGpu), kSelf), Chains{"0: copy by copy"})
      << "a peer copy, and no two copies through host memory";
}

TEST(Transports, FromAFileToAGpuGoThroughHostMemory) {
  EXPECT_EQ(chains(read(kGpu, kFile), kSelf), Chains{"0: file copy by file through host"});
  EXPECT_EQ(chains(write(kGpu, kFile), kSelf), Chains{"0: copy file by file through host"});
  EXPECT_EQ(chains(read(kGpu, kFile), {false, {{kTcp, 1}}}),
            Chains{"0: file rail copy by tcp through host"});
  EXPECT_EQ(chains(write(kGpu, kFile), {false, {{kTcp, 1}}}),
            Chains{"0: copy rail file by tcp through host"});
}

TEST(Transports, ToAPeerGoByTheSoonestRail) {
  EXPECT_EQ(chains(write(kHost, kHost), {false, {{kTcp, 1}, {kShm, 5}}}),
            (Chains{"0: rail by shm", "1: rail by tcp"}));
  EXPECT_EQ(chains(write(kHost, kHost), {false, {{kTcp, 1}, {"verbs;ofi_rxm", 25}}}),
            (Chains{"0: rail by verbs;ofi_rxm", "0: rail by tcp"}))
      << "those over networks carry a request together";
  EXPECT_EQ(chains(write(kHost, kMapping), {false, {{kTcp, 100}}}),
            (Chains{"0: mapped by mapped", "1: rail by tcp"}))
      << "mapped memory first, whatever a NIC claims";
  EXPECT_EQ(chains(read(kHost, kFile), {false, {{kTcp, 1}}}), Chains{"0: file rail by tcp"});
}

TEST(Transports, ToGpusOfAPeerGoByRailsThatReachThem) {
  const Links links{false, {{kTcp, 1}, {"tcp+gpu", 1}, {kLocal, 5}}};
  EXPECT_EQ(chains(write(kGpu, kOtherGpu), links),
            (Chains{"0: rail by local", "1: copy rail copy by tcp+gpu"}));
  EXPECT_EQ(chains(write(kHost, kHost), links), Chains{"0: rail by tcp"});
  EXPECT_EQ(chains(write(kHost, kLater), links), (Chains{"0: rail by local", "1: rail by tcp+gpu"}))
      << "it may be memory of a GPU";
  EXPECT_EQ(chains(write(kHost, kGpu), {false, {{kTcp, 1}}}), Chains{});
  EXPECT_EQ(chains(write(kGpu, kMapping), {false, {{kTcp, 1}}}),
            Chains{"0: copy rail by tcp through host"})
      << "the CPU does not copy between mapped memory and a GPU";
}

/// The search finds them, and one backend spreads each copy over all: they are one transport.
TEST(Transports, OfAGpuLeadOverRelaysToo) {
  const Links links{true, {}, {{0, 60, 50, 0}, {1, 30, 40, 200}, {3, 10, 30, 200}}};
  const auto stops = [](const std::vector<Hop>& chain, const Ends& ends) {
    std::string text = stop_name(chain.front().from, ends);
    for (const Hop& hop : chain) text += ", " + stop_name(hop.to, ends);
    return text;
  };
  for (const auto& ends : {write(kHost, kGpu), read(kHost, kGpu)}) {
    const bool is_write = ends.operation == Operation::kWrite;
    const std::vector<Transport> found = transports_between(ends, links);
    ASSERT_EQ(found.size(), 1u);
    const Transport& all = found.front();
    EXPECT_EQ(all.carrier, HopKind::kCopy);
    EXPECT_FALSE(all.is_through_host);
    EXPECT_EQ(stops(all.hops, ends), is_write ? "host memory, GPU 0" : "GPU 0, host memory");
    EXPECT_EQ(all.hops.front().gbps, 50);
    ASSERT_EQ(all.beside.size(), 2u);
    EXPECT_EQ(stops(all.beside[0], ends),
              is_write ? "host memory, GPU 1, GPU 0" : "GPU 0, GPU 1, host memory");
    EXPECT_EQ(relay_of(all.beside[0]), 1);
    EXPECT_EQ(relay_of(all.beside[1]), 3);
    EXPECT_EQ(relay_of(all.hops), -1);
  }
  EXPECT_TRUE(transports_between(write(kGpu, kOtherGpu), links).front().beside.empty())
      << "NVLink joins them, and no relay";
}

/// Whoever offers a chain must be able to run it: a main hop that a backend carries, copies at ends
/// that are GPUs, files at ends that are files, and host memory here only before a backend that
/// reaches no GPU.
TEST(Transports, AreAllCarriedOut) {
  const std::vector<Links> all_links = {
      kSelf,
      {false, {{kTcp, 1}}},
      {false, {{kTcp, 1}, {kShm, 5}}},
      {false, {{kLocal, 5}}},
      {false, {{kTcp, 1}, {kShm, 5}, {kLocal, 5}, {"tcp+gpu", 1}, {"shm+gpu", 5}}}};
  size_t seen = 0;
  for (const Links& links : all_links)
    for (const Endpoint& here : {kHost, kGpu})
      for (const Endpoint& there : {kHost, kGpu, kOtherGpu, kFile, kLater, kMapping})
        for (const Operation operation : {Operation::kRead, Operation::kWrite}) {
          const Ends ends{operation, here, there};
          for (const Transport& each : transports_between(ends, links)) {
            const auto count = [&](HopKind kind) {
              return std::count_if(each.hops.begin(), each.hops.end(),
                                   [&](const Hop& hop) { return hop.kind == kind; });
            };
            ++seen;
            EXPECT_EQ(count(each.carrier), 1);
            EXPECT_EQ(each.carrier == HopKind::kRail, !links.is_self && !each.provider.empty() &&
                                                          links.gbps.contains(each.provider));
            EXPECT_EQ(count(HopKind::kFile), there.is_file ? 1 : 0);
            EXPECT_EQ(each.carrier == HopKind::kFile, links.is_self && there.is_file);
            EXPECT_TRUE(links.is_self || !there.place.is_gpu || reaches_gpus(each.provider));
            const bool copies_here = here.place.is_gpu && each.carrier != HopKind::kCopy;
            EXPECT_EQ(each.is_through_host, copies_here && !reaches_gpus(each.provider));
            if (each.is_through_host) {
              const Hop& ours =
                  operation == Operation::kRead ? each.hops.back() : each.hops.front();
              EXPECT_EQ(ours.kind, HopKind::kCopy);
            }
          }
        }
  EXPECT_GT(seen, 100u);
}

}  // namespace
}  // namespace braid::transfer
