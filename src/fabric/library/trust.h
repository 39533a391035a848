// The engines that an engine of the library trusts: those that have its secret, or, without a
// secret, those of its user on its host.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "fabric/library/options.h"
#include "fabric/seal.h"
#include "host/same_user.h"

namespace braid::fabric {

inline constexpr const char* kSecretVariable = "BRAID_FABRIC_SECRET_FILE";

/// The secret, or none. An error if there is none, other hosts can reach one of the rails, and the
/// options do not allow that.
Result<Secret> secret_for(const ServiceOptions& wanted, const std::vector<std::string>& addresses);

struct Trust {
  Secret secret = {};
  Admits admits = Admits::kThisUser;  ///< to what listens over TCP
};
Result<Trust> trust_for(const ServiceOptions& wanted, const std::vector<std::string>& addresses);

}  // namespace braid::fabric
