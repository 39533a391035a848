// What is known of rails by the names of their providers: libfabric's; the same with "+gpu", which
// stage GPU memory at both ends (fabric/staged); and "local", GPUs of one host (fabric/local).
// "mapped" is no rail: host memory that processes of one host share (sharing/).
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
/// Between processes of one host alone.
inline bool stays_in_host(const std::string& provider) {
  return provider == "shm" || provider == std::string("shm") + kStaged || provider == kLocal;
}
/// Without what stages GPU memory.
inline std::string wire_of(const std::string& provider) {
  return is_staged(provider) ? provider.substr(0, provider.size() - std::string(kStaged).size())
                             : provider;
}

}  // namespace braid::transfer
