// Opens a rail over a provider of libfabric, with as many endpoints as endpoint_count.h says.
// Fabrics and transfers open theirs here.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "fabric/domain.h"
#include "fabric/library/endpoint_count.h"
#include "fabric/library/trust.h"
#include "fabric/ofi/domain.h"

namespace braid::fabric {

/// `has_gpu_memory`: it carries GPU memory too, through host memory, since no provider here can
/// access it; the secret then seals what both ends say of it.
Result<std::unique_ptr<Domain>> open_wire(const ofi::Quirks& quirks, const std::string& address,
                                          const EndpointCount& counts, bool has_gpu_memory,
                                          const Trust& trust);

}  // namespace braid::fabric
