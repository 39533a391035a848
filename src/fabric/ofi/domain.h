// A domain on libfabric: one reliable-datagram endpoint with one completion queue.
#pragma once

#include <memory>
#include <string>

#include "fabric/domain.h"
#include "fabric/ofi/quirks.h"

namespace braid::fabric::ofi {

/// `host_address` is that of the network interface, for providers that listen at one.
Result<std::unique_ptr<Domain>> open_domain(const Quirks& quirks, const std::string& host_address);

}  // namespace braid::fabric::ofi
