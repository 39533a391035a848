// Replaces functions that a loaded library imports, for that library alone (its procedure linkage
// table).
#pragma once

#include "base/status.h"

namespace braid::fabric::ofi {

/// From now on `library`, a handle of dlopen that was loaded with RTLD_NOW, calls `replacement`
/// instead of `name`. Returns the function that it called before. Other libraries are not affected.
/// Nobody else may replace imports of the same library at the same time.
Result<void*> replace_import(void* library, const char* name, void* replacement);

}  // namespace braid::fabric::ofi
