// A server as text and as JSON, for `braid topo`.
#pragma once

#include <string>

#include "topology/server.h"

namespace braid::tools {

/// Aligned tables; every figure carries the number of a note that says where it comes from.
std::string topo_text(const topology::Server& server);

/// {"server": <a profile>, "paths": [...]}: the same facts.
std::string topo_json(const topology::Server& server);

}  // namespace braid::tools
