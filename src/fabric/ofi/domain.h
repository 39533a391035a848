// A domain on libfabric: one reliable-datagram endpoint with one completion queue.
#pragma once

#include <memory>
#include <string>

#include "fabric/domain.h"
#include "fabric/ofi/quirks.h"
#include "host/same_user.h"

namespace braid::fabric::ofi {

/// `host_address` is that of the network interface, for providers that listen at one. These take
/// connections from those alone whom `admits` names (guard.h).
Result<std::unique_ptr<Domain>> open_domain(const Quirks& quirks, const std::string& host_address,
                                            Admits admits = Admits::kThisUser);

}  // namespace braid::fabric::ofi
