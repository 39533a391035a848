// The file in which `braid tune` keeps what copies cost on a server, in the user's cache folder. It
// is read once, when an engine opens. A server is known by its GPUs and its driver, so a folder
// that several servers share holds a file for each.
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

/// The bounds of a file's figures. Beyond them, slices would be endless or have no bytes.
inline constexpr double kMostCost = 1e10;
inline constexpr double kLeastRate = 0.1;

struct CostFile {
  std::string server;         ///< its key
  int64_t measured_at_s = 0;  ///< seconds since 1970
  CostModel costs;
};

/// Fails when the file cannot be read, is malformed, or lacks a parameter.
Result<CostFile> read_cost_file(const std::string& path);

/// Replaces the file as a whole: who reads meanwhile sees the old one or the new.
Status write_cost_file(const std::string& path, const CostFile& file);

/// Where the options say that the file is; empty: nowhere. It need not exist.
std::string cost_file_path(const Options& options, const std::string& server);

/// The costs that an engine goes by, and where they are from.
struct LoadedCosts {
  CostModel costs = default_costs();
  std::string path;           ///< empty: the defaults
  int64_t measured_at_s = 0;  ///< of the file
  Status problem;             ///< why a file that is there is not used
};

/// The server's own file if it is there, else the defaults. A file that the user has named must be
/// there.
LoadedCosts load_costs(const cuda::Driver& driver, const Options& options);

}  // namespace braid::multipath
