// Batches of many entries on many streams at once, as several threads of a server make them.
#include <bit>
#include <cstring>

#include "support/gate.h"
#include "support/server.h"

namespace braid::multipath {
namespace {

using test::DeviceBuffer;
using test::Gate;
using test::HostBuffer;

constexpr uint64_t kEntries = 2000, kEntryBytes = 8 << 10;
constexpr int kStreams = 8;

class ManyBatchesTest : public test::ServerTest {
 protected:
  // Apart from each other, and in reverse order at one end: nothing becomes one piece.
  static std::vector<Segment> entries(HostBuffer& host, const DeviceBuffer& device) {
    std::vector<Segment> all;
    for (uint64_t i = 0; i < kEntries; ++i)
      all.push_back({host.data() + i * kEntryBytes, device.at((kEntries - 1 - i) * kEntryBytes),
                     kEntryBytes});
    return all;
  }

  void expect_arrived(const std::vector<Segment>& segments, const DeviceBuffer& device) {
    std::vector<uint8_t> seen(kEntries * kEntryBytes);
    MUST(driver(), cuMemcpyDtoH(seen.data(), device.at(), seen.size()));
    for (const Segment& segment : segments)
      ASSERT_EQ(std::memcmp(seen.data() + (segment.device - device.at()), segment.host,
                            segment.size_bytes),
                0);
  }
};

// All are under way together: nothing of the first has ended when the last is asked for.
TEST_F(ManyBatchesTest, EightAtOnceAreAllCarriedOverEveryLink) {
  auto engine = open_engine();
  HostBuffer host(driver(), kEntries * kEntryBytes);
  host.fill_random(4);
  std::vector<std::unique_ptr<DeviceBuffer>> devices;
  std::vector<CUstream> streams;
  for (int i = 0; i < kStreams; ++i) {
    devices.push_back(std::make_unique<DeviceBuffer>(driver(), kEntries * kEntryBytes));
    streams.push_back(new_stream());
  }
  Gate gate(driver());
  for (int i = 0; i < kStreams; ++i) {
    gate.hold(streams[i]);
    const auto segments = entries(host, *devices[i]);
    const Outcome outcome = engine->submit(Batch{Direction::kHostToDevice, segments, streams[i]});
    EXPECT_STREQ(verdict_name(outcome), "accelerated") << "stream " << i;
    EXPECT_EQ(std::popcount(outcome.via), gpus()) << "stream " << i;
  }
  gate.open();
  for (int i = 0; i < kStreams; ++i) {
    synchronize(streams[i]);
    expect_arrived(entries(host, *devices[i]), *devices[i]);
  }
}

}  // namespace
}  // namespace braid::multipath
