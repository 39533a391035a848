// How many rails an address over sockets has.
#include "transfer/library/sockets.h"

#include <gtest/gtest.h>

namespace braid::transfer {
namespace {

constexpr double kGbps10 = 1.25, kGbps400 = 50;  // by their bits

size_t sockets(const fabric::EndpointRoom& room, double gbps = kGbps400) {
  return Sockets{{}, room}.at(gbps);
}

TEST(TransferSockets, TheProgramKeepsCpusAndDescriptors) {
  EXPECT_EQ(sockets({192, 1 << 20, 1}), 4u);
  EXPECT_EQ(sockets({8, 1 << 20, 1}), 2u);
  EXPECT_EQ(sockets({192, 1024, 1}), 1u);
  EXPECT_EQ(sockets({192, 16384, 1}), 2u);
  EXPECT_EQ(sockets({192, 16384, 2}), 1u) << "all addresses share them";
  EXPECT_EQ(sockets({192, 1 << 20, 1}, kGbps10), 1u);
  EXPECT_EQ(sockets({0, 0, 0}), 1u) << "nothing is known";
}

TEST(TransferSockets, WhatTheUserAsksForCounts) {
  EXPECT_EQ((Sockets{7, {2, 1024, 1}}.at(kGbps10)), 7u);
}

}  // namespace
}  // namespace braid::transfer
