// Opens the engine of the library on rails that are open.
#pragma once

#include <memory>

#include "base/status.h"
#include "transfer/engine.h"
#include "transfer/library/open_rails.h"
#include "transfer/library/options.h"
#include "transfer/places.h"

namespace braid::transfer {

/// Takes the domains of the rails, and completes their descriptions.
Result<std::unique_ptr<Engine>> open_engine(const OpenOptions& options, OpenedRails& opened,
                                            Places places);

}  // namespace braid::transfer
