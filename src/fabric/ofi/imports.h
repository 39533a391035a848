// Functions that a loaded library imports, replaced for that library alone (its procedure linkage
// table).
#pragma once

#include "base/status.h"

namespace braid::fabric::ofi {

/// From now on `library`, a handle of dlopen that was loaded with RTLD_NOW, calls `replacement`
/// where it called `name`. Returns what it called before. Other libraries go on as they were. While
/// nobody else replaces imports of the same library.
Result<void*> replace_import(void* library, const char* name, void* replacement);

}  // namespace braid::fabric::ofi
