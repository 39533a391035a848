// Which streams a lane gives its copies.
#include "fabric/gpu/lane.h"

#include <mutex>
#include <set>
#include <vector>

#include "support/eventually.h"
#include "support/gate.h"
#include "support/server.h"

namespace braid::fabric::gpu {
namespace {

using braid::test::DeviceBuffer;
using braid::test::eventually;
using braid::test::HostBuffer;
constexpr uint64_t kBytes = 16 << 20;  // a group of its own
constexpr uint64_t kCopies = 3;

/// Copies as the driver does, behind a gate.
class HeldCarrier final : public Carrier {
 public:
  HeldCarrier(const cuda::Driver& driver, braid::test::Gate& gate) : driver_(driver), gate_(gate) {}
  void prepare() override {}
  void forget() override {}
  CUresult copy(CUdeviceptr to, CUdeviceptr from, uint64_t size_bytes, CUstream stream) override {
    const std::lock_guard lock(mutex_);
    if (streams_.insert(stream).second) gate_.hold(stream);
    ++begun_;
    return driver_.cuMemcpyAsync(to, from, size_bytes, stream);
  }
  uint64_t begun() {
    const std::lock_guard lock(mutex_);
    return begun_;
  }
  size_t stream_count() {
    const std::lock_guard lock(mutex_);
    return streams_.size();
  }

 private:
  const cuda::Driver& driver_;
  braid::test::Gate& gate_;
  std::mutex mutex_;
  std::set<CUstream> streams_;
  uint64_t begun_ = 0;
};

class LaneTest : public braid::test::ServerTest {};

// Each fills all links alone. Two at a time would end together, and all links rest after that.
TEST_F(LaneTest, CarriedCopiesGoOneBehindTheOther) {
  HostBuffer host(driver(), kCopies * kBytes), back(driver(), kCopies * kBytes);
  DeviceBuffer device(driver(), kCopies * kBytes);
  host.fill_random(3);
  const auto lane = lane_of(driver(), nullptr, 0);
  const auto ended = std::make_shared<Ended>();
  for (const CopyKind kind : {CopyKind::kToGpu, CopyKind::kToHost}) {
    braid::test::Gate gate(driver());
    HeldCarrier carrier(driver(), gate);
    for (uint64_t i = 0; i < kCopies; ++i) {
      Copy copy;
      copy.to = copy.from = device.at(i * kBytes);
      if (kind == CopyKind::kToGpu)
        copy.from = reinterpret_cast<CUdeviceptr>(host.data() + i * kBytes);
      if (kind == CopyKind::kToHost)
        copy.to = reinterpret_cast<CUdeviceptr>(back.data() + i * kBytes);
      copy.size_bytes = kBytes;
      copy.ended = ended;
      copy.carrier = &carrier;
      lane->copy(kind, std::move(copy));
    }
    EXPECT_TRUE(eventually([&] { return carrier.begun() == kCopies; }))
        << carrier.begun() << " have begun: the next is to stand behind the one under way";
    EXPECT_EQ(carrier.stream_count(), 1u);
    gate.open();
    std::vector<Ended::Copy> all;
    EXPECT_TRUE(eventually([&] { return ended->take(all), all.size() == kCopies; }));
    for (const Ended::Copy& copy : all) EXPECT_TRUE(copy.ok);
  }
  EXPECT_TRUE(std::equal(host.data(), host.data() + host.size(), back.data()));
}

}  // namespace
}  // namespace braid::fabric::gpu
