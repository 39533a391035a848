// Whom an engine of the library trusts: those who have its secret, or else those of its host.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "fabric/library/options.h"
#include "fabric/seal.h"

namespace braid::fabric {

inline constexpr const char* kSecretVariable = "BRAID_FABRIC_SECRET_FILE";

/// The secret, or none. An error if there is none, other hosts could reach one of the rails, and
/// nobody has allowed that.
Result<Secret> secret_for(const ServiceOptions& wanted, const std::vector<std::string>& addresses);

}  // namespace braid::fabric
