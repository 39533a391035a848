// What must leave no trace in this process is asked in a child of it.
#pragma once

#include <functional>
#include <string>

#include "base/status.h"

namespace braid::tools {

/// `ask`'s answer, or its error. Libraries that it loads are loaded in the child only.
Result<std::string> ask_in_child(const std::function<Result<std::string>()>& ask);

}  // namespace braid::tools
