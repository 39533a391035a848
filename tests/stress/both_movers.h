// What makes braid take both movers in one program of the stress test, by the size of a copy.
#pragma once

#include <map>
#include <string>

namespace braid::stress {

/// Writes costs of the server that `environment` describes, by which copy engines are faster with
/// copies up to some 40 KB and kernels with larger ones, to a file, and returns its path. The
/// driver is opened in this process.
std::string write_costs_of_both_movers(const std::map<std::string, std::string>& environment,
                                       const std::string& path);

}  // namespace braid::stress
