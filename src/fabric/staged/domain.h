// Writes from and into GPU memory over a domain that cannot access it, through rings of pinned host
// memory (docs/fabric.md, "GPU memory"). Regions of host memory are passed on to that domain
// unchanged.
//
// Both ends of a connection use it. Its contract is that of fabric/domain.h, with two additions.
// Removal always fences a region of GPU memory, even if the domain behind does not fence
// (`removal_fences(region)`). The destructor waits for its own copies and, if memory is pinned, for
// the streams of the context that it was pinned in; no other member waits for a GPU.
#pragma once

#include <memory>

#include "fabric/domain.h"
#include "fabric/staged/options.h"

namespace braid::fabric::staged {

Result<std::unique_ptr<Domain>> stage(std::unique_ptr<Domain> wire, const Options& options = {});

}  // namespace braid::fabric::staged
