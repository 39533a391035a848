// What braid says on stderr: each message once, and every message.
#include "preload/messages.h"

#include <gtest/gtest.h>

namespace braid::preload {
namespace {

TEST(Messages, EachIsSaidOnce) {
  testing::internal::CaptureStderr();
  for (int again = 0; again < 3; ++again) {
    say_once("GPU 1 does not relay");
    say_once("GPU 2 does not relay");
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "braid: GPU 1 does not relay\nbraid: GPU 2 does not relay\n");
}

}  // namespace
}  // namespace braid::preload
