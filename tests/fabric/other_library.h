// Another braid library in this process, with an engine: as a Python module's beside the program's
// own. It replaces the same functions of libfabric as the library that is tested.
#pragma once

#include <braid/fabric_abi.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

namespace braid::fabric::test {

/// Made after the tested library has opened its first domain, it is asked before that one.
class OtherLibrary {
 public:
  explicit OtherLibrary(const char* provider)
      : library_(dlopen(BRAID_FABRIC_LIBRARY, RTLD_NOW | RTLD_LOCAL)) {
    braid_fabric_options options{};
    options.struct_bytes = sizeof options;
    options.provider = provider;
    const auto open = find<decltype(&braid_fabric_open)>("braid_fabric_open");
    EXPECT_TRUE(open != nullptr && open(&options, &engine_) == BRAID_OK) << dlerror();
  }
  ~OtherLibrary() {
    const auto close = find<decltype(&braid_fabric_close)>("braid_fabric_close");
    if (close != nullptr) close(engine_);
  }
  OtherLibrary(const OtherLibrary&) = delete;
  OtherLibrary& operator=(const OtherLibrary&) = delete;

 private:
  template <typename Function>
  Function find(const char* name) const {
    return library_ == nullptr ? nullptr : reinterpret_cast<Function>(dlsym(library_, name));
  }

  void* library_;  // is never unloaded
  braid_fabric* engine_ = nullptr;
};

}  // namespace braid::fabric::test
