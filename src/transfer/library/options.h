// The options of an engine of the library: braid_transfer_options, in C++.
#pragma once

#include <string>
#include <vector>

namespace braid::transfer {

struct OpenOptions {
  std::string name = {};    ///< the name for other processes of this host; empty: none
  std::string listen = {};  ///< host:port where the engine listens for processes that ask by name;
                            ///< empty: the first address, and any port
  std::vector<std::string> addresses = {};  ///< one for each network rail; none: by `nics`,
                                            ///< or else where the engine listens
  std::string nics = {};                    ///< fabric/library/rail_choice.h
  std::vector<std::string> providers =
      {};                        ///< libfabric's names, and those of transfer/providers.h;
                                 ///< none: mapped memory, shm if it is here, and tcp
  bool has_gpu_memory = false;   ///< without `providers`: also those that reach GPUs
  std::string secret_file = {};  ///< fabric/library/trust.h
  bool allows_unauthenticated = false;
  std::string store = {};  ///< directory/store.h; empty: kStoreVariable, or else none
  bool is_pinned = true;   ///< memory and thread on the rails' NUMA node, if there are several
};

}  // namespace braid::transfer
