// Properties of rails by the names of their providers: libfabric's names; the same with "+gpu" for
// rails that stage GPU memory at both ends (fabric/staged); and "local" for GPUs of one host
// (fabric/local). "mapped" is no rail: host memory that processes of one host share (sharing/).
#pragma once

#include <string>

namespace braid::transfer {

inline constexpr const char* kLocal = "local";
inline constexpr const char* kMapped = "mapped";
inline constexpr const char* kStaged = "+gpu";

inline bool is_staged(const std::string& provider) { return provider.ends_with(kStaged); }
inline bool reaches_gpus(const std::string& provider) {
  return provider == kLocal || is_staged(provider);
}
/// Whether it connects only processes of one host.
inline bool stays_in_host(const std::string& provider) {
  return provider == "shm" || provider == std::string("shm") + kStaged || provider == kLocal;
}
/// The name of the provider without "+gpu".
inline std::string wire_of(const std::string& provider) {
  return is_staged(provider) ? provider.substr(0, provider.size() - std::string(kStaged).size())
                             : provider;
}

}  // namespace braid::transfer
