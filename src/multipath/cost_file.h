// The file in which `braid tune` keeps the costs of copies on a server, in the user's cache folder.
// It is read once, when an engine opens. A server is identified by its GPUs and its driver; a
// folder that several servers share holds a file for each.
//
// Threads: any. Reading and writing allocate and block; errors name the file and the remedy.
#pragma once

#include <cstdint>
#include <string>

#include "base/options.h"
#include "base/status.h"
#include "cuda/driver.h"
#include "multipath/cost_model.h"

namespace braid::multipath {

/// "4x-nvidia-h200-1b2c3d4e": the GPUs that this process sees. The digits are a hash of their
/// names, memory and bus addresses and of the driver's version.
Result<std::string> server_key(const cuda::Driver& driver);

/// The bound of a file's figures. Beyond it, slices would be endless or have no bytes.
inline constexpr double kMostCost = 1e10;
inline constexpr double kLeastRate = 0.1;

struct CostFile {
  std::string server;         ///< its key
  int64_t measured_at_s = 0;  ///< seconds since 1970
  CostModel costs;
};

/// Fails when the file cannot be read, is malformed, or lacks a parameter.
Result<CostFile> read_cost_file(const std::string& path);

/// Replaces the file atomically: a reader sees the old file or the new one.
Status write_cost_file(const std::string& path, const CostFile& file);

/// The path of the file by the options; empty if there is none. The file need not exist.
std::string cost_file_path(const Options& options, const std::string& server);

/// The costs that an engine uses, and their source.
struct LoadedCosts {
  CostModel costs = default_costs();
  std::string path;           ///< empty: the defaults
  int64_t measured_at_s = 0;  ///< of the file
  Status problem;             ///< the reason why an existing file is not used
};

/// Reads the server's own file; if there is none, uses the defaults. A file that the user has named
/// must exist.
LoadedCosts load_costs(const cuda::Driver& driver, const Options& options);

}  // namespace braid::multipath
