// What children of the program inherit while the driver starts with more GPUs than the program's.
#include "lending/lent_gpus.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "lending/visible_devices.h"

namespace braid::lending {
namespace {

std::string visible() { return std::getenv(kVisibleVariable); }

std::string seen_by_driver;
std::string seen_by_child;

// Another thread of the program may fork at any time: so here, in the middle of cuInit.
CUresult start_and_fork(unsigned) {
  seen_by_driver = visible();
  int ends[2];
  if (pipe(ends) != 0) return CUDA_ERROR_UNKNOWN;
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    execlp("sh", "sh", "-c", "printf %s $CUDA_VISIBLE_DEVICES", nullptr);
    _exit(1);
  }
  close(ends[1]);
  char text[64];
  const ssize_t size = read(ends[0], text, sizeof text);
  close(ends[0]);
  waitpid(child, nullptr, 0);
  seen_by_child.assign(text, size > 0 ? static_cast<size_t>(size) : 0);
  return CUDA_SUCCESS;
}

CUresult count_four(int* count) {
  *count = 4;
  return CUDA_SUCCESS;
}

TEST(LentGpus, AChildThatIsForkedDuringTheStartInheritsTheProgramsOwnList) {
  setenv(kLendVariable, "0:GPU-aa00,1:GPU-aa11,2:GPU-bb22,3:GPU-bb33", 1);
  setenv(kVisibleVariable, "3", 1);
  const DriverStart driver{start_and_fork, count_four, [](const char*) noexcept {}};
  ASSERT_EQ(start_driver(driver, 0, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(seen_by_driver, "3,0,1,2");
  EXPECT_EQ(seen_by_child, "3");
  EXPECT_EQ(visible(), "3");
  EXPECT_EQ(own_gpus(), 1);
}

}  // namespace
}  // namespace braid::lending
