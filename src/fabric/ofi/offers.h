// A provider's offer at one network interface.
#pragma once

#include <rdma/fabric.h>

#include <memory>
#include <string>

#include "fabric/ofi/library.h"
#include "fabric/ofi/quirks.h"

namespace braid::fabric::ofi {

struct FreeInfo {
  void operator()(fi_info* info) const { library().value()->freeinfo(info); }
};
using Info = std::unique_ptr<fi_info, FreeInfo>;

/// The first offer at this address of the host, or of this RDMA device: see Quirks.
Result<Info> find_offer(const Quirks& quirks, const std::string& address);

}  // namespace braid::fabric::ofi
