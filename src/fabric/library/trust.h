// The engines that an engine of the library trusts: those that have its secret. An engine that was
// given none trusts those of its user on its host.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "fabric/library/options.h"
#include "fabric/seal.h"

namespace braid::fabric {

/// The secret that was given, or the user's (user_secret.h), or none if the options allow that. An
/// error if there was given none, other hosts can reach one of the rails, and the options do not
/// allow that.
Result<Secret> secret_for(const ServiceOptions& wanted, const std::vector<std::string>& addresses);

}  // namespace braid::fabric
