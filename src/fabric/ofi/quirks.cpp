#include "fabric/ofi/quirks.h"

namespace braid::fabric::ofi {

std::span<const Quirks* const> all_quirks() {
  static const Quirks* const all[] = {&tcp_quirks(), &shm_quirks(), &net_quirks(), &verbs_quirks(),
                                      &efa_quirks()};
  return all;
}

const Quirks* find_quirks(std::string_view provider) {
  for (const Quirks* quirks : all_quirks())
    if (quirks->provider == provider) return quirks;
  return nullptr;
}

}  // namespace braid::fabric::ofi
