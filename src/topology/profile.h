// Servers as JSON: docs/profiles.md says, field by field, how to write one. Each figure is an
// object {"value": ..., "source": "..."}, so that a profile says where its numbers come from.
//
// Errors name the file, the key path and what was expected, e.g.
//   h20x8.json: links[3].forward_gbps.value: expected a number above 0, found "fast"
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "topology/server.h"

namespace braid::topology {

/// Reads and validates the profile at `path`.
Result<Server> load_profile(const std::string& path);

/// The same from JSON text; `name` stands for the file in errors.
Result<Server> parse_profile(std::string_view json, const std::string& name);

/// The server as a profile's JSON text, which parse_profile reads back to an equal server. The
/// profile of a server without costs has none either; add them before reading it.
std::string write_profile(const Server& server);

}  // namespace braid::topology
