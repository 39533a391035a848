#include <braid/copy.h>

// No driver is needed to be told of a wrong option.
int main() {
  const braid_option options[] = {{"BRAID_NO_SUCH_OPTION", "1"}};
  return braid::Engine::open(options).ok() ? 1 : 0;
}
