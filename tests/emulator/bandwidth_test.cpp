// What copies cost follows from the profile's links; nothing is tuned here.
#include "fixture.h"
#include "topology/profile.h"

namespace braid::emulator_test {
namespace {

constexpr size_t kSize = 256u << 20;

topology::Server profile(const std::string& name) {
  auto server = topology::load_profile(std::string(BRAID_PROFILES) + "/" + name + ".json");
  EXPECT_TRUE(server.ok());
  return server.value();
}

double route_gbps(const topology::Server& server, const std::vector<topology::Hop>& hops) {
  double narrowest = 1e9;
  for (const topology::Hop& hop : hops) {
    const topology::Link& link = server.links[hop.link];
    narrowest =
        std::min(narrowest, hop.forward ? link.forward_gbps.value : link.backward_gbps.value);
  }
  return narrowest;
}

// One asynchronous copy on a GPU, between two events.
struct TimedCopy {
  TimedCopy(Emulated& server_, int gpu, bool to_gpu) : server(server_) {
    server.use(gpu);
    device = server.device_memory(kSize);
    host = server.pinned_memory(kSize);
    stream = server.stream();
    start = server.recorded(stream);
    if (to_gpu)
      EXPECT_EQ(server.cu.cuMemcpyHtoDAsync(device, host, kSize, stream), CUDA_SUCCESS);
    else
      EXPECT_EQ(server.cu.cuMemcpyDtoHAsync(host, device, kSize, stream), CUDA_SUCCESS);
    end = server.recorded(stream);
  }
  double finish() {
    EXPECT_EQ(server.cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
    return gbps(kSize, server.elapsed_us(start, end));
  }
  Emulated& server;
  CUdeviceptr device;
  uint8_t* host;
  CUstream stream;
  CUevent start;
  CUevent end;
};

TEST(Bandwidth, OneCopyRunsAtTheLinksRate) {
  const auto model = profile("h200x4");
  Emulated server;
  const double up = TimedCopy(server, 0, true).finish();
  const double down = TimedCopy(server, 0, false).finish();
  EXPECT_NEAR(up, route_gbps(model, topology::host_route(model, 0, 0, true)), 0.2);
  EXPECT_NEAR(down, route_gbps(model, topology::host_route(model, 0, 0, false)), 0.2);
}

TEST(Bandwidth, SmallCopiesPayTheStart) {
  const auto model = profile("h200x4");
  Emulated server;
  server.use(0);
  CUdeviceptr device = server.device_memory(4096);
  uint8_t* host = server.pinned_memory(4096);
  CUstream stream = server.stream();
  CUevent start = server.recorded(stream);
  ASSERT_EQ(server.cu.cuMemcpyHtoDAsync(device, host, 4096, stream), CUDA_SUCCESS);
  CUevent end = server.recorded(stream);
  ASSERT_EQ(server.cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
  const double bytes_us = 4096 / route_gbps(model, topology::host_route(model, 0, 0, true)) * 1e-3;
  EXPECT_NEAR(server.elapsed_us(start, end),
              model.costs.copy_start_us.value + model.costs.api_call_us.value + bytes_us, 0.01);
}

TEST(Bandwidth, CopiesInOneDirectionTakeTurnsOnTheEngine) {
  const auto model = profile("h200x4");
  ASSERT_EQ(model.copy_engines_h2d.value, 1);
  Emulated server;
  TimedCopy first(server, 0, true);
  TimedCopy second(server, 0, true);
  const double link = route_gbps(model, topology::host_route(model, 0, 0, true));
  EXPECT_NEAR(first.finish(), link, 0.2);
  EXPECT_NEAR(second.finish(), link / 2, 0.2);
}

TEST(Bandwidth, FourGpusShareHostMemory) {
  const auto model = profile("h200x4");
  for (const bool up : {true, false}) {
    double memory = 0;
    for (const topology::Link& link : model.links)
      if (link.kind == topology::LinkKind::kMemory)
        memory = up ? link.forward_gbps.value : link.backward_gbps.value;
    const double alone = route_gbps(model, topology::host_route(model, 0, 0, up));
    Emulated server;
    std::vector<TimedCopy> copies;
    for (int gpu = 0; gpu < 4; ++gpu) copies.emplace_back(server, gpu, up);
    double total = 0;
    for (TimedCopy& copy : copies) {
      server.use(0);
      total += copy.finish();
    }
    EXPECT_NEAR(total, std::min(4 * alone, memory), 1.5) << (up ? "h2d" : "d2h");
  }
}

TEST(Bandwidth, BothWaysAtOnceMeetTheirLimit) {
  const auto model = profile("h200x4");
  double both = 0;
  for (const topology::Link& link : model.links)
    if (link.kind == topology::LinkKind::kPcie && link.both_gbps.value > 0)
      both = link.both_gbps.value;
  ASSERT_GT(both, 0);
  Emulated server;
  TimedCopy up(server, 0, true);
  TimedCopy down(server, 0, false);
  EXPECT_NEAR(up.finish() + down.finish(), both, 0.5);
}

TEST(Bandwidth, TheSocketLimitBinds) {
  const auto model = profile("h20x8");
  double socket = 0;
  for (const topology::Link& link : model.links)
    if (link.kind == topology::LinkKind::kSocket) socket = link.forward_gbps.value;
  ASSERT_GT(socket, 0);
  Emulated server("h20x8");
  std::vector<CUstream> streams;
  std::vector<CUevent> starts;
  std::vector<CUevent> ends;
  server.use(0);
  uint8_t* host = server.pinned_memory(kSize);  // near GPU 0: node 0
  std::vector<int> far;
  for (int gpu = 0; gpu < 8; ++gpu)
    if (model.gpus[gpu].numa_node != model.gpus[0].numa_node) far.push_back(gpu);
  ASSERT_EQ(far.size(), 4u);
  for (const int gpu : far) {
    server.use(gpu);
    CUstream stream = server.stream();
    CUdeviceptr device = server.device_memory(kSize);
    starts.push_back(server.recorded(stream));
    ASSERT_EQ(server.cu.cuMemcpyHtoDAsync(device, host, kSize, stream), CUDA_SUCCESS);
    ends.push_back(server.recorded(stream));
    streams.push_back(stream);
  }
  double total = 0;
  for (size_t i = 0; i < streams.size(); ++i) {
    ASSERT_EQ(server.cu.cuStreamSynchronize(streams[i]), CUDA_SUCCESS);
    total += gbps(kSize, server.elapsed_us(starts[i], ends[i]));
  }
  EXPECT_NEAR(total, socket, 1);
}

TEST(Bandwidth, PeerCopiesUseNvlinkOncePeerAccessIsEnabled) {
  const auto model = profile("h200x4");
  Emulated server;
  CUcontext one = server.use(1);
  CUdeviceptr on_one = server.device_memory(kSize);
  CUcontext zero = server.use(0);
  CUdeviceptr on_zero = server.device_memory(kSize);
  CUstream stream = server.stream();
  const auto timed = [&] {
    CUevent start = server.recorded(stream);
    EXPECT_EQ(server.cu.cuMemcpyPeerAsync(on_one, one, on_zero, zero, kSize, stream), CUDA_SUCCESS);
    CUevent end = server.recorded(stream);
    EXPECT_EQ(server.cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
    return gbps(kSize, server.elapsed_us(start, end));
  };
  const double pcie = std::min(route_gbps(model, topology::host_route(model, 0, 0, false)),
                               route_gbps(model, topology::host_route(model, 0, 1, true)));
  EXPECT_LT(timed(), pcie + 0.1);
  ASSERT_EQ(server.cu.cuCtxEnablePeerAccess(one, 0), CUDA_SUCCESS);
  const double nvlink = route_gbps(model, topology::peer_route(model, 0, 1));
  EXPECT_NEAR(timed(), nvlink, nvlink * 0.03);
}

TEST(Bandwidth, PageableMemoryIsSlow) {
  Emulated server;
  server.use(0);
  std::vector<uint8_t> host(64u << 20, 1);
  CUdeviceptr device = server.device_memory(host.size());
  CUevent start = server.recorded(nullptr);
  ASSERT_EQ(server.cu.cuMemcpyHtoD(device, host.data(), host.size()), CUDA_SUCCESS);
  CUevent end = server.recorded(nullptr);
  ASSERT_EQ(server.cu.cuEventSynchronize(end), CUDA_SUCCESS);
  EXPECT_NEAR(gbps(static_cast<double>(host.size()), server.elapsed_us(start, end)), 10.3, 0.1);
}

}  // namespace
}  // namespace braid::emulator_test
