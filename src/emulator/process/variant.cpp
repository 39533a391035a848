#include "emulator/model/variant.h"

#include <cstdlib>
#include <sstream>
#include <string>

namespace braid::emulator {

Variant read_variant() {
  Variant variant;
  if (const char* modes = std::getenv("EMULATED_COMPUTE_MODES")) {
    std::istringstream entries(modes);
    for (std::string entry; std::getline(entries, entry, ',');)
      variant.compute_modes.push_back(static_cast<CUcomputemode>(std::atoi(entry.c_str())));
  }
  const char* waits = std::getenv("EMULATED_SETTING_ACCESS_WAITS");
  variant.setting_access_waits = waits != nullptr && std::string(waits) == "1";
  return variant;
}

}  // namespace braid::emulator
