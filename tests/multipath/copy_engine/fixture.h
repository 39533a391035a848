// A server whose GPUs are all prepared for the copy-engine mover, without an engine above it.
#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "cuda/scoped_context.h"
#include "multipath/copy_engine/mover.h"
#include "multipath/endpoint.h"
#include "support/server.h"

namespace braid::multipath {

class CopyEngineTest : public test::ServerTest {
 protected:
  using Policy = copy_engine::Policy;

  void open(const Policy& policy = {}, const Options& options = every_size()) {
    auto opened = CopyEngineMover::open(driver(), options, policy);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    mover = std::move(opened).value();
    for (int gpu = 0; gpu < gpus(); ++gpu) {
      CUdevice device = 0;
      CUcontext held = nullptr;
      MUST(driver(), cuDeviceGet(&device, gpu));
      MUST(driver(), cuDevicePrimaryCtxRetain(&held, device));
      auto endpoint = Endpoint::open(driver(), options, device, gpu, context(gpu), true);
      ASSERT_TRUE(endpoint.ok()) << endpoint.status().message();
      endpoints.push_back(std::move(endpoint).value());
    }
    for (int from = 0; from < gpus(); ++from)
      for (int to = 0; to < gpus(); ++to) {
        cuda::ScopedContext scope(driver(), context(from));
        if (from != to) driver().cuCtxEnablePeerAccess(context(to), 0);
      }
    for (const auto& endpoint : endpoints) {
      const Status status = mover->prepare(*endpoint);
      ASSERT_TRUE(status.ok()) << status.message();
    }
  }

  /// The first `paths - 1` GPUs beside the target; 0: all.
  std::vector<Endpoint*> relays_for(int target, int paths = 0) const {
    std::vector<Endpoint*> relays;
    for (int gpu = 0; gpu < gpus(); ++gpu) {
      if (paths != 0 && static_cast<int>(relays.size()) >= paths - 1) break;
      if (gpu != target) relays.push_back(endpoints[gpu].get());
    }
    return relays;
  }

  Verdict submit(const Batch& batch, int target = 0, int paths = 0) {
    return mover->submit(batch, *endpoints[target], relays_for(target, paths));
  }

  std::vector<PathCount> counts() {
    PathCounts counts;
    mover->add_counts(counts);
    return {counts.all().begin(), counts.all().end()};
  }

  /// Where the thread is not inside: before the first transfer, and when it rests.
  CopyEngineUse use() {
    PathCounts counts;
    mover->add_counts(counts);
    return counts.copy_engine;
  }

  Verdict submit(Direction direction, test::HostBuffer& host, const test::DeviceBuffer& device,
                 uint64_t size_bytes, CUstream stream, int target = 0, int paths = 0) {
    const Segment segment{host.data(), device.at(), size_bytes};
    return submit({direction, {&segment, 1}, stream, Priority::kBulk}, target, paths);
  }

  /// Bytes that transfers so far have carried, once all have ended.
  uint64_t carried_bytes() {
    EXPECT_TRUE(mover->drain(2000));
    uint64_t bytes = 0;
    for (const PathCount& count : counts()) bytes += count.bytes;
    return bytes;
  }

  /// Those of them that went over other links than their target's own.
  uint64_t relayed_bytes() {
    uint64_t bytes = 0;
    for (const PathCount& count : counts())
      if (count.via != count.target) bytes += count.bytes;
    return bytes;
  }

  std::vector<std::unique_ptr<Endpoint>> endpoints;
  std::unique_ptr<CopyEngineMover> mover;  // before the endpoints
};

}  // namespace braid::multipath
