#include "fabric/fake_provider/use.h"

#include <dlfcn.h>

#include <cstdlib>

namespace braid::fabric::test {

void use_fake_providers() {
  setenv("FI_PROVIDER_PATH", BRAID_FAKE_PROVIDERS, 1);
  setenv("FI_MR_CACHE_MAX_COUNT", "0", 1);
}

int break_fake_connections(const std::string& address) {
  void* library = dlopen(BRAID_FAKE_PROVIDERS "/libbraid_fake_verbs-fi.so", RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return 0;
  using Break = int(const char*);
  auto* found = reinterpret_cast<Break*>(dlsym(library, "braid_fake_break"));
  return found != nullptr ? found(address.c_str()) : 0;
}

}  // namespace braid::fabric::test
