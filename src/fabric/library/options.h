// The options of an engine of the library: braid_fabric_options, in C++.
#pragma once

#include <string>
#include <vector>

namespace braid::fabric {

struct ServiceOptions {
  std::string provider = {};                ///< empty: the first that this host has
  std::vector<std::string> addresses = {};  ///< one for each rail; none: by `nics`
  std::string nics = {};         ///< see rail_choice.h; empty: kNicsVariable, or else loopback
  std::string secret_file = {};  ///< see trust.h; empty: kSecretVariable, or else no secret
  bool allows_unauthenticated = false;
  bool has_gpu_memory = false;  ///< regions may be memory of GPUs: rails are staged
  bool is_pinned = true;  ///< memory and thread are on the rails' NUMA node, if there are several
};

}  // namespace braid::fabric
