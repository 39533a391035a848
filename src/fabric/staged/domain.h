// Writes from and into GPU memory over a domain that cannot touch it, through rings of pinned host
// memory (docs/fabric.md, "GPU memory"). Regions of host memory go on to that domain as they are.
//
// Both ends of a connection have it. Its contract is that of fabric/domain.h, with these additions:
// removal fences a region of GPU memory whatever the domain behind says (`removal_fences(region)`);
// and the destructor waits for its own copies and, where memory is pinned, for the streams of the
// context that it was pinned in. No other member waits for a GPU.
#pragma once

#include <memory>

#include "fabric/domain.h"

namespace braid::fabric::staged {

Result<std::unique_ptr<Domain>> stage(std::unique_ptr<Domain> wire);

}  // namespace braid::fabric::staged
