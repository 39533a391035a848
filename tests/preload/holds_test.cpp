// The program's holds on primary contexts, as calls of several threads count them.
#include <gtest/gtest.h>

#include "preload/primaries.h"

namespace braid::preload {
namespace {

constexpr CUdevice kDevice = 5;

void retain() {
  PrimaryRetain hold(kDevice);
  hold.succeeded(nullptr);
}

TEST(Holds, ARefusedReleaseTakesNone) {
  retain();
  {
    PrimaryGiveUp give_up(kDevice, GiveUp::kRelease);
    EXPECT_TRUE(give_up.ends_it());
    give_up.released(CUDA_ERROR_UNKNOWN);
  }
  EXPECT_FALSE(is_primary_unheld(kDevice));
  PrimaryGiveUp(kDevice, GiveUp::kRelease).released(CUDA_SUCCESS);
  EXPECT_TRUE(is_primary_unheld(kDevice));
}

// There were none, as the driver says; but by then another thread has one.
TEST(Holds, WhatIsRetainedMeanwhileStays) {
  retain();
  retain();
  {
    PrimaryGiveUp give_up(kDevice, GiveUp::kRelease);
    retain();
    give_up.released(CUDA_ERROR_INVALID_CONTEXT);
  }
  EXPECT_FALSE(is_primary_unheld(kDevice));
  PrimaryGiveUp last(kDevice, GiveUp::kRelease);
  EXPECT_TRUE(last.ends_it()) << "holds that were none are left";
  last.released(CUDA_SUCCESS);
  EXPECT_TRUE(is_primary_unheld(kDevice));
}

}  // namespace
}  // namespace braid::preload
