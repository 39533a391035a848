// Programs whose libraries come between them and braid: they get the right bytes, and what becomes
// of their copies is known.
#include <gtest/gtest.h>

#include "tests/preload/programs.h"

namespace braid::test {
namespace {

constexpr uint64_t kBytes = (uint64_t{6} << 20) + 77;

// Such a library finds the driver and libc's dlsym before it finds anything preloaded: its copies
// are native and not counted. The program beside it is served.
TEST(Neighbours, ALibraryThatBindsDeeplyCopiesNatively) {
  const Words program{BRAID_TEST_CLIENTS "/client_deepbind",
                      BRAID_TEST_CLIENTS "/libclient_deepbound.so"};
  EXPECT_EQ(natively(program).output, "right\n");
  const ChildResult child = with_braid(program);
  EXPECT_EQ(child.output, "right\n");
  const auto statistics = only_statistics(child);
  EXPECT_EQ(counted(statistics, "cuMemcpyHtoDAsync_v2", "accelerated"), (Counted{3, 3 * kBytes}));
  EXPECT_EQ(statistics.at("entry_points").at("cuMemcpyHtoDAsync_v2").size(), 1u) << statistics;
  EXPECT_EQ(path_bytes(statistics), 3 * kBytes);
}

// Like torch_memory_saver: allocations become mappings, which are taken away and put back.
TEST(Neighbours, ALibraryThatMapsAllMemoryAnewMayBePreloadedToo) {
  const Words program{BRAID_TEST_CLIENTS "/client_sleeping"};
  const std::string sleeper = BRAID_TEST_CLIENTS "/libclient_sleeper.so";
  const std::string ours = BRAID_PRELOAD_LIBRARY;
  EXPECT_EQ(natively(program, {{"LD_PRELOAD", sleeper}}).output, "awake\n");
  for (const char* mover : {"kernel", "copy-engine"})
    for (const std::string& order : {sleeper + ":" + ours, ours + ":" + sleeper}) {
      const ChildResult child =
          run_child(program, waiting({{"LD_LIBRARY_PATH", BRAID_EMULATOR_FOLDER},
                                      {"BRAID_SERVER", BRAID_PROFILES "/h20x8.json"},
                                      {"BRAID_STATS", "json"},
                                      {"BRAID_MOVER", mover},
                                      {"CUDA_DEVICE_MAX_CONNECTIONS", "21"},
                                      {"LD_PRELOAD", order}}));
      EXPECT_EQ(child.output, "awake\n") << order << child.errors;
      const auto statistics = only_statistics(child);
      for (const char* symbol : {"cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2"})
        EXPECT_EQ(counted(statistics, symbol, "accelerated"), (Counted{9, 9 * kBytes}))
            << order << mover << statistics;
      EXPECT_EQ(path_bytes(statistics), 18 * kBytes) << order << mover;
      EXPECT_GT(statistics.at("paths").size(), 4u) << "relays were not let in: " << statistics;
    }
}

}  // namespace
}  // namespace braid::test
