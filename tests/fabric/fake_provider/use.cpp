#include "fabric/fake_provider/use.h"

#include <cstdlib>

namespace braid::fabric::test {

void use_fake_providers() {
  setenv("FI_PROVIDER_PATH", BRAID_FAKE_PROVIDERS, 1);
  setenv("FI_MR_CACHE_MAX_COUNT", "0", 1);
}

}  // namespace braid::fabric::test
