#include "fabric/library/trust.h"

#include <cstdlib>

#include "base/try.h"
#include "fabric/ofi/quirks.h"
#include "host/addresses.h"

namespace braid::fabric {

Result<Secret> secret_for(const ServiceOptions& wanted, const std::vector<std::string>& addresses) {
  const char* variable = std::getenv(kSecretVariable);
  const std::string path =
      wanted.secret_file.empty() && variable != nullptr ? variable : wanted.secret_file;
  if (!path.empty()) return Secret::of_file(path);
  const ofi::Quirks* quirks = ofi::find_quirks(wanted.provider);
  const bool is_reachable =
      wanted.provider != "local" && (quirks == nullptr || quirks->reaches_hosts);
  const bool takes_device = quirks != nullptr && quirks->takes_device;
  for (const std::string& address : addresses)
    if (is_reachable && !wanted.allows_unauthenticated && (takes_device || !is_loopback(address)))
      return Status::error(
          "other hosts can reach " + address + ", and there is no secret",
          std::string("Let ") + kSecretVariable + " name a file with the secret of all engines (" +
              making_of_secret("FILE") +
              "), or allow it if every host there may be trusted: in programs by "
              "allow_unauthenticated. Commands that open engines have --secret-file and "
              "--allow-unauthenticated");
  return Secret();
}

Result<Trust> trust_for(const ServiceOptions& wanted, const std::vector<std::string>& addresses) {
  BRAID_LET(secret, secret_for(wanted, addresses));
  const Admits without = wanted.allows_unauthenticated ? Admits::kOtherHosts : Admits::kThisUser;
  return Trust{secret, secret.is_set() ? Admits::kAnybody : without};
}

}  // namespace braid::fabric
