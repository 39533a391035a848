// What each policy of MMA section 3.4.2 changes, on the emulated h20x8 in virtual time, and the
// paper's comparisons (figure 11, table 2). The figures are outputs of the link model.
#include <cstdio>
#include <functional>

#include "multipath/copy_engine/fixture.h"

namespace braid::multipath {
namespace {

using test::DeviceBuffer;
using test::HostBuffer;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kGiB = uint64_t{1} << 30;

class CopyEnginePoliciesTest : public CopyEngineTest {
 protected:
  // A copy between two events; `wait` says when both have passed.
  struct Timed {
    CUevent begin;
    CUevent end;
    CUstream stream;
  };
  Timed timed(CUstream stream, const std::function<void()>& work) {
    const Timed span{new_event(), new_event(), stream};
    MUST(driver(), cuEventRecord(span.begin, stream));
    work();
    MUST(driver(), cuEventRecord(span.end, stream));
    return span;
  }
  double wait_us(const Timed& span) {
    synchronize(span.stream);
    return elapsed_us(span.begin, span.end);
  }

  Timed copy(HostBuffer& host, const DeviceBuffer& device, uint64_t size_bytes, CUstream stream,
             int paths = 0, Priority priority = Priority::kBulk) {
    return timed(stream, [&] {
      const Segment segment{host.data(), device.at(), size_bytes};
      ASSERT_EQ(submit({Direction::kHostToDevice, {&segment, 1}, stream, priority}, 0, paths),
                Verdict::kAccelerated);
    });
  }

  // Native copies of 4 MB to a GPU, which share its copy engine with whatever else is there.
  Timed background(int gpu, HostBuffer& host, const DeviceBuffer& device, CUstream stream,
                   int copies) {
    use_gpu(gpu);
    const Timed span = timed(stream, [&] {
      for (int i = 0; i < copies; ++i)
        MUST(driver(), cuMemcpyHtoDAsync(device.at(), host.data(), 4 * kMiB, stream));
    });
    use_gpu(0);
    return span;
  }
};

// Figure 11: two paths, with and without background traffic on the relay's link.
TEST_F(CopyEnginePoliciesTest, PullingIsAsGoodAsTheRightSplitInBothCases) {
  Policy dynamic, even, uneven;
  dynamic.yields = even.yields = uneven.yields = false;
  even.split = {1, 1};
  uneven.split = {2, 1};
  double idle_us[3], busy_us[3];
  const Policy* policies[] = {&dynamic, &even, &uneven};
  const char* names[] = {"pulling", "split 1:1", "split 2:1"};
  HostBuffer host(driver(), kGiB / 2), other(driver(), 4 * kMiB);
  DeviceBuffer device(driver(), kGiB / 2);
  use_gpu(1);
  DeviceBuffer elsewhere(driver(), 4 * kMiB);
  const CUstream native = new_stream();
  use_gpu(0);
  const CUstream stream = new_stream();
  for (int i = 0; i < 3; ++i) {
    mover.reset();
    endpoints.clear();
    open(*policies[i]);
    idle_us[i] = wait_us(copy(host, device, kGiB / 2, stream, 2));
    const Timed traffic = background(1, other, elsewhere, native, 250);
    busy_us[i] = wait_us(copy(host, device, kGiB / 2, stream, 2));
    wait_us(traffic);
    std::printf("512 MiB over two paths, %s: %.2f ms, with background traffic %.2f ms\n", names[i],
                idle_us[i] / 1e3, busy_us[i] / 1e3);
  }
  EXPECT_LT(idle_us[0], 1.05 * idle_us[1]);
  EXPECT_LT(busy_us[0], 1.05 * busy_us[2]);
  EXPECT_GT(busy_us[1], 1.2 * busy_us[0]) << "1:1 waits for the congested path";
  EXPECT_GT(idle_us[2], 1.2 * idle_us[0]) << "2:1 leaves the idle one unused";
}

TEST_F(CopyEnginePoliciesTest, YieldingLeavesMoreToBackgroundTrafficThanCompeting) {
  double native_us[2], braid_us[2];
  HostBuffer host(driver(), kGiB), other(driver(), 4 * kMiB);
  DeviceBuffer device(driver(), kGiB);
  use_gpu(1);
  DeviceBuffer elsewhere(driver(), 4 * kMiB);
  const CUstream native = new_stream();
  use_gpu(0);
  const CUstream stream = new_stream();
  for (const bool yields : {false, true}) {
    mover.reset();
    endpoints.clear();
    Policy policy;
    policy.yields = yields;
    open(policy);
    wait_us(copy(host, device, kGiB / 4, stream, 2));  // what the link usually does
    const Timed whole = copy(host, device, kGiB, stream, 2);
    native_us[yields] = wait_us(background(1, other, elsewhere, native, 64));
    braid_us[yields] = wait_us(whole);
    std::printf("relay's link shared, %s: native 256 MiB %.2f ms, braid 1 GiB %.2f ms\n",
                yields ? "yield" : "compete", native_us[yields] / 1e3, braid_us[yields] / 1e3);
  }
  EXPECT_LT(native_us[true], 0.8 * native_us[false]);
  EXPECT_LT(braid_us[true], 1.4 * braid_us[false]);
}

// Table 2: eight copies at once, each to its own GPU, beside a peer copy.
TEST_F(CopyEnginePoliciesTest, DirectFirstLeavesNvlinkToOthers) {
  constexpr uint64_t kSize = 128 * kMiB, kPeerSize = 512 * kMiB;
  HostBuffer host(driver(), kSize);
  std::vector<std::unique_ptr<DeviceBuffer>> devices;
  std::vector<CUstream> streams;
  for (int gpu = 0; gpu < gpus(); ++gpu) {
    use_gpu(gpu);
    devices.push_back(std::make_unique<DeviceBuffer>(driver(), kSize));
    streams.push_back(new_stream());
  }
  use_gpu(2);
  DeviceBuffer from(driver(), kPeerSize);
  const CUstream peer = new_stream();
  use_gpu(3);
  DeviceBuffer to(driver(), kPeerSize);
  use_gpu(2);
  const auto peer_gbps = [&] {
    return kPeerSize / 1e3 / wait_us(timed(peer, [&] {
             MUST(driver(),
                  cuMemcpyPeerAsync(to.at(), context(3), from.at(), context(2), kPeerSize, peer));
           }));
  };
  double gbps[2];
  uint64_t relayed[2];
  double alone = 0;
  for (const bool direct_first : {false, true}) {
    mover.reset();
    endpoints.clear();
    Policy policy;
    policy.direct_first = direct_first;
    open(policy);
    alone = peer_gbps();
    for (int gpu = 0; gpu < gpus(); ++gpu)
      ASSERT_EQ(submit(Direction::kHostToDevice, host, *devices[gpu], kSize, streams[gpu], gpu),
                Verdict::kAccelerated);
    gbps[direct_first] = peer_gbps();
    for (const CUstream stream : streams) synchronize(stream);
    ASSERT_TRUE(mover->drain(5000));
    relayed[direct_first] = relayed_bytes();
  }
  std::printf("peer copy alone %.1f GB/s; beside eight copies, direct first %.1f, not %.1f\n",
              alone, gbps[true], gbps[false]);
  EXPECT_GE(gbps[true], 0.98 * alone);
  EXPECT_LT(gbps[false], 0.98 * gbps[true]);
  EXPECT_LT(relayed[true], relayed[false] / 4) << "before the last has started";
}

TEST_F(CopyEnginePoliciesTest, AnUrgentCopyOvertakesABulkOne) {
  open();
  constexpr uint64_t kUrgent = 64 * kMiB;
  HostBuffer host(driver(), kGiB);
  host.fill_random(3);
  DeviceBuffer device(driver(), kGiB), small(driver(), kUrgent);
  const CUstream bulk = new_stream(), urgent = new_stream();
  const double alone_us = wait_us(copy(host, small, kUrgent, urgent));
  double us[2];
  for (const Priority priority : {Priority::kBulk, Priority::kUrgent}) {
    const Timed whole = copy(host, device, kGiB, bulk);
    us[static_cast<size_t>(priority)] = wait_us(copy(host, small, kUrgent, urgent, 0, priority));
    wait_us(whole);
  }
  std::printf("64 MiB: alone %.2f ms, behind 1 GiB %.2f ms, urgent %.2f ms\n", alone_us / 1e3,
              us[0] / 1e3, us[1] / 1e3);
  EXPECT_LT(us[1], 2.5 * alone_us);
  EXPECT_GT(us[0], 2 * us[1]);
  std::vector<uint8_t> seen(kUrgent);
  MUST(driver(), cuMemcpyDtoH(seen.data(), small.at(), kUrgent));
  EXPECT_EQ(std::memcmp(seen.data(), host.data(), kUrgent), 0);
}

TEST_F(CopyEnginePoliciesTest, BothDirectionsAtOnceShareTheRelays) {
  open();
  HostBuffer there(driver(), kGiB / 2), back(driver(), kGiB / 2);
  DeviceBuffer in(driver(), kGiB / 2), out(driver(), kGiB / 2);
  const CUstream one = new_stream(), two = new_stream();
  const Timed load = copy(there, in, kGiB / 2, one);
  const Timed store = timed(two, [&] {
    ASSERT_EQ(submit(Direction::kDeviceToHost, back, out, kGiB / 2, two), Verdict::kAccelerated);
  });
  const double load_us = wait_us(load), store_us = wait_us(store);
  std::printf("both ways at once, 512 MiB each: H2D %.1f GB/s, D2H %.1f GB/s\n",
              kGiB / 2 / load_us / 1e3, kGiB / 2 / store_us / 1e3);
  EXPECT_LT(std::max(load_us, store_us), 1.5 * std::min(load_us, store_us)) << "neither starves";
  EXPECT_GT(kGiB / std::max(load_us, store_us) / 1e3, 2 * 97.0) << "one link both ways: 97 GB/s";
}

}  // namespace
}  // namespace braid::multipath
