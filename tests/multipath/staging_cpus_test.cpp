// On which CPUs the threads of staging run.
#include <sched.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "support/server.h"

namespace braid::multipath {
namespace {

// The masks of this process's threads of that name.
std::vector<cpu_set_t> masks_of(const std::string& name) {
  std::vector<cpu_set_t> masks;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string found;
    std::getline(std::ifstream(task.path() / "comm"), found);
    cpu_set_t mask;
    const pid_t thread = std::stoi(task.path().filename());
    if (found == name && sched_getaffinity(thread, sizeof mask, &mask) == 0) masks.push_back(mask);
  }
  return masks;
}

void stay_on_one_cpu(const cpu_set_t& all) {
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu)
    if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
}

class StagingCpusTest : public test::ServerTest {};

// A program may copy first in a thread that it has bound to one CPU, as those of a data loader.
TEST_F(StagingCpusTest, AreThoseThatWereCountedWhoeverCopiesFirst) {
  constexpr uint64_t kSize = 8 << 20;
  cpu_set_t all;
  ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
  if (CPU_COUNT(&all) < 2) GTEST_SKIP() << "one CPU";
  Options options = every_size();
  options.pageable_threads = 3;
  const auto engine = open_engine(options);
  const CUstream stream = new_stream();
  test::DeviceBuffer device(driver(), kSize);
  std::thread([&] {
    stay_on_one_cpu(all);
    use_gpu(0);
    std::vector<uint8_t> host(kSize);
    const auto staged =
        engine->stage({Direction::kHostToDevice, host.data(), device.at(), kSize, stream}, true);
    ASSERT_TRUE(staged.has_value());
    EXPECT_EQ(*staged, CUDA_SUCCESS);
  }).join();
  const std::vector<cpu_set_t> masks = masks_of("braid-stage");
  EXPECT_EQ(masks.size(), 3u);
  for (const cpu_set_t& mask : masks) EXPECT_TRUE(CPU_EQUAL(&mask, &all)) << CPU_COUNT(&mask);
}

}  // namespace
}  // namespace braid::multipath
