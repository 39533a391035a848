// The clock of the driver table: on the emulated server, its virtual time.
#include "base/clock.h"

#include "fixture.h"
#include "process_test.h"

namespace braid::emulator_test {
namespace {

TEST(Clock, IsTheServersVirtualTime) {
  Emulated server;
  Clock& clock = *server.cu.clock;
  ASSERT_NE(&clock, &system_clock());
  EXPECT_FALSE(clock.is_common()) << "each process has a server of its own";
  server.use(0);
  CUstream stream = server.stream();
  CUdeviceptr device = server.device_memory(1 << 20);
  uint8_t* host = server.pinned_memory(1 << 20);
  CUevent begin = server.recorded(stream);
  ASSERT_EQ(server.cu.cuEventSynchronize(begin), CUDA_SUCCESS);
  const uint64_t before_ns = clock.now_ns();
  EXPECT_EQ(clock.now_ns(), before_ns) << "looking at it takes no time";
  ASSERT_EQ(server.cu.cuMemcpyHtoDAsync(device, host, 1 << 20, stream), CUDA_SUCCESS);
  CUevent end = server.recorded(stream);
  ASSERT_EQ(server.cu.cuEventSynchronize(end), CUDA_SUCCESS);
  // It has seen the copy, but for what the two calls that synchronise take.
  EXPECT_NEAR(static_cast<double>(clock.now_ns() - before_ns) * 1e-3, server.elapsed_us(begin, end),
              10);
}

TEST(Clock, AForkedChildHasNoVirtualTimeAndDoesNotHang) {
  Emulated server;
  server.use(0);
  const ChildResult child = in_child([&] { return std::to_string(server.cu.clock->now_ns()); });
  EXPECT_EQ(child.status, 0);
  EXPECT_EQ(child.output, "0");
}

}  // namespace
}  // namespace braid::emulator_test
