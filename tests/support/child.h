// Runs a program as a child process, for tests that look at whole processes.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace braid::test {

struct ChildResult {
  int exit_code = -1;  ///< -1: ended by a signal
  int signal = 0;
  std::string output;
  std::string errors;

  /// Each line of statistics that braid printed, in order.
  std::vector<nlohmann::json> statistics() const;
  /// `errors` without them.
  std::string other_errors() const;
};

using Environment = std::map<std::string, std::string>;  // an empty value unsets

/// `words[0]` is looked up in PATH. The environment is this process's, less every BRAID_ variable,
/// with BRAID_COSTS=none, BRAID_THRESHOLD=4M, BRAID_OPENING=wait and then `changes` applied.
ChildResult run_child(const std::vector<std::string>& words, const Environment& changes = {});

/// Calls and bytes of one entry point and verdict in one line of statistics; 0 when not there.
struct Counted {
  uint64_t calls = 0;
  uint64_t bytes = 0;
  bool operator==(const Counted&) const = default;
};
Counted counted(const nlohmann::json& statistics, const std::string& entry_point,
                const std::string& verdict);

/// Bytes of all paths.
uint64_t path_bytes(const nlohmann::json& statistics);

}  // namespace braid::test
