// A line's numbers: they wrap, and what has not passed is never taken for passed.
#include "multipath/copy_engine/line.h"

#include <gtest/gtest.h>

#include "support/server.h"

namespace braid::multipath::copy_engine {
namespace {

using test::HostBuffer;

class LineTest : public test::ServerTest, public ::testing::WithParamInterface<Line::Writer> {};

// At 4 MiB a slice a busy link needs two days for 2^31 of them.
TEST_P(LineTest, NumbersWrap) {
  for (const uint32_t first : {0u, 0x7ffffffeu, 0x80000005u, 0xfffffffeu}) {
    HostBuffer words(driver(), 4096);
    auto* word = reinterpret_cast<uint32_t*>(words.data());
    uint32_t* gate = word + 16;
    *word = first;
    *gate = 0;
    Line line;
    ASSERT_TRUE(line.open(driver(), 0, word, GetParam()).ok());
    for (uint32_t round = 1; round <= 4; ++round) {
      MUST(driver(), cuStreamWaitValue32(line.stream(), reinterpret_cast<CUdeviceptr>(gate), round,
                                         CU_STREAM_WAIT_VALUE_EQ));
      const uint32_t number = line.mark();
      EXPECT_EQ(number, first + round);
      EXPECT_EQ(line.progress(number), Line::Progress::kPending) << first << " " << round;
      *gate = round;
      synchronize(line.stream());
      EXPECT_EQ(line.inquire(number), Line::Progress::kPassed) << first << " " << round;
      EXPECT_EQ(line.progress(number - 1), Line::Progress::kPassed) << "what was before it, too";
    }
    line.close();
  }
}

INSTANTIATE_TEST_SUITE_P(Writers, LineTest,
                         ::testing::Values(Line::Writer::kItself, Line::Writer::kBeside),
                         [](const auto& tested) {
                           return tested.param == Line::Writer::kItself ? "Itself" : "Beside";
                         });

}  // namespace
}  // namespace braid::multipath::copy_engine
