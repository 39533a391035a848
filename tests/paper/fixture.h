// The MMA paper's experiments on the emulated h20x8, each with both movers: the parameter says
// which carries the copies. Times are virtual and the figures outputs of the link model; nothing
// here is tuned towards the paper's. What is asserted is what the paper claims in words; where a
// mover does not meet it, its figure is printed and the test is skipped with the reason.
#pragma once

#include <cstdio>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "support/server.h"

namespace braid {

/// What ctest shows beside a test's name.
inline void PrintTo(MoverChoice mover, std::ostream* out) {
  *out << (mover == MoverChoice::kKernel ? "kernel mover" : "copy-engine mover");
}

}  // namespace braid

namespace braid::paper {

using multipath::Direction;
using multipath::Engine;
using multipath::Priority;
using multipath::Verdict;
using test::DeviceBuffer;
using test::HostBuffer;

inline constexpr uint64_t kMiB = uint64_t{1} << 20;
inline constexpr uint64_t kGiB = uint64_t{1} << 30;
/// MMA section 5.1.1: one H20's PCIe link.
inline constexpr double kNativeGbps = 53;
/// What holds of the copy-engine mover where the paper decides slice by slice.
inline constexpr const char* kNotMet = "not met: the plan is enqueued whole";
/// One copy of the program's own traffic.
inline constexpr uint64_t kNativeCopyBytes = 4 * kMiB;

inline double gbps(uint64_t size_bytes, double us) {
  return static_cast<double>(size_bytes) / us / 1e3;
}

class PaperTest : public test::ServerTest, public ::testing::WithParamInterface<MoverChoice> {
 protected:
  bool is_kernel() const { return GetParam() == MoverChoice::kKernel; }
  const char* mover_text() const { return is_kernel() ? "kernel" : "copy-engine"; }

  Options options() const {
    Options options = every_size();
    options.mover = GetParam();
    options.costs = "none";
    return options;
  }

  /// Copies from one GPU's primary context to the other's memory pass over NVLink from now on.
  void reach(int from, int to) const {
    use_gpu(from);
    const CUresult enabled = driver().cuCtxEnablePeerAccess(context(to), 0);
    if (enabled != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
      test::must(driver(), enabled, "cuCtxEnablePeerAccess");
    use_gpu(0);
  }

  /// Two events of one stream.
  struct Span {
    CUevent begin;
    CUevent end;
    CUstream stream;
  };
  Span span(CUstream stream, const std::function<void()>& work) {
    const Span made{new_event(), new_event(), stream};
    MUST(driver(), cuEventRecord(made.begin, stream));
    work();
    MUST(driver(), cuEventRecord(made.end, stream));
    return made;
  }
  double wait_us(const Span& made) const {
    synchronize(made.stream);
    return elapsed_us(made.begin, made.end);
  }

  /// The stream and the device memory are the current context's.
  Span copy(Engine& engine, Direction direction, HostBuffer& host, const DeviceBuffer& device,
            uint64_t size_bytes, CUstream stream, Priority priority = Priority::kBulk) {
    return span(stream, [&] {
      ASSERT_EQ(engine.submit({direction, host.data(), device.at(), size_bytes, stream, priority}),
                Verdict::kAccelerated);
    });
  }
  Span load(Engine& engine, HostBuffer& host, const DeviceBuffer& device, uint64_t size_bytes,
            CUstream stream, Priority priority = Priority::kBulk) {
    return copy(engine, Direction::kHostToDevice, host, device, size_bytes, stream, priority);
  }

  /// Over the target's own link alone. The copy-engine mover leaves such a copy to the driver.
  Span direct(Engine& engine, Direction direction, HostBuffer& host, const DeviceBuffer& device,
              uint64_t size_bytes, CUstream stream) {
    if (is_kernel()) {
      engine.limit_paths(1);
      return copy(engine, direction, host, device, size_bytes, stream);
    }
    return span(stream, [&] {
      if (direction == Direction::kHostToDevice)
        MUST(driver(), cuMemcpyHtoDAsync(device.at(), host.data(), size_bytes, stream));
      else
        MUST(driver(), cuMemcpyDtoHAsync(host.data(), device.at(), size_bytes, stream));
    });
  }

  /// What one GPU needs for copies of one size.
  struct Site {
    int gpu;
    DeviceBuffer device;
    CUstream stream;
  };
  /// Leaves GPU 0's context current.
  std::unique_ptr<Site> site(int gpu, uint64_t size_bytes) {
    use_gpu(gpu);
    auto made =
        std::unique_ptr<Site>(new Site{gpu, DeviceBuffer(driver(), size_bytes), new_stream()});
    use_gpu(0);
    return made;
  }
  Span load(Engine& engine, HostBuffer& host, const Site& to, uint64_t size_bytes) {
    use_gpu(to.gpu);
    const Span made = load(engine, host, to.device, size_bytes, to.stream);
    use_gpu(0);
    return made;
  }

  /// Copies that braid has no part in, one after another.
  Span native(HostBuffer& host, const Site& to, int copies) {
    use_gpu(to.gpu);
    const Span made = span(to.stream, [&] {
      for (int i = 0; i < copies; ++i)
        MUST(driver(), cuMemcpyHtoDAsync(to.device.at(), host.data(), kNativeCopyBytes, to.stream));
    });
    use_gpu(0);
    return made;
  }

  /// One line: where the paper says it, what the paper says, what is so here.
  void figure(const char* source, const char* paper, const std::string& here) const {
    std::printf("MMA %s, %s mover | paper: %s | here: %s\n", source, mover_text(), paper,
                here.c_str());
  }
};

/// printf into a string.
template <typename... Values>
std::string text(const char* format, Values... values) {
  char line[512];
  std::snprintf(line, sizeof line, format, values...);
  return line;
}

inline std::string mover_suffix(const ::testing::TestParamInfo<MoverChoice>& info) {
  return info.param == MoverChoice::kKernel ? "Kernel" : "CopyEngine";
}
#define BRAID_BOTH_MOVERS(suite)                                                              \
  INSTANTIATE_TEST_SUITE_P(Paper, suite,                                                      \
                           ::testing::Values(MoverChoice::kKernel, MoverChoice::kCopyEngine), \
                           mover_suffix)

}  // namespace braid::paper
