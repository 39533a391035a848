// Replaces functions that a loaded library imports, for that library alone (its procedure linkage
// table). A process may have two braid libraries (the Python door's, and the program's own), which
// replace the imports of the same libfabric. Each function passes on to the one before it what is
// none of its own library's.
#pragma once

#include <atomic>

#include "base/status.h"
#include "base/try.h"

namespace braid::fabric::ofi {

/// From now on `library`, a handle of dlopen that was loaded with RTLD_NOW, calls `replacement`
/// instead of `name`. Returns the function that it called before. Other libraries are not affected.
/// Other threads may do the same meanwhile, also of another braid library.
Result<void*> replace_import(void* library, const char* name, void* replacement);

/// A function that was replaced, as it was before: libc's, or another braid library's.
template <typename Function>
class Before {
 public:
  Status replace(void* libfabric, const char* name, Function* replacement) {
    BRAID_LET(before, replace_import(libfabric, name, reinterpret_cast<void*>(replacement)));
    function_ = reinterpret_cast<Function*>(before);
    return {};
  }
  template <typename... Arguments>
  auto operator()(Arguments... arguments) const {
    return function()(arguments...);
  }
  bool is(Function* other) const { return function() == other; }

 private:
  Function* function() const {
    Function* before = nullptr;
    while (before == nullptr) before = function_;  // it is being replaced just now
    return before;
  }

  std::atomic<Function*> function_ = nullptr;
};

}  // namespace braid::fabric::ofi
