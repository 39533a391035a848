// A server as text and as JSON, for `braid topo`.
#pragma once

#include <string>
#include <vector>

#include "topology/server.h"

namespace braid::tools {

/// Aligned tables; every figure carries the number of a note that says where it comes from.
std::string topo_text(const topology::Server& server);

/// {"server": <a profile>, "paths": [...], "nics": [...], "near_nics": [...]}: the same facts.
std::string topo_json(const topology::Server& server);

/// NICs alone, of a host that may have no GPU: a table, and {"nics": [...]}.
std::string nics_text(const std::vector<topology::Nic>& nics);
std::string nics_json(const std::vector<topology::Nic>& nics);

}  // namespace braid::tools
