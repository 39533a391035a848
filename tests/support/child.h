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

/// `words[0]` is looked up in PATH. The environment is this process's, with `changes` applied, and
/// without BRAID_ variables and the user's cache folder: braid runs by default.
ChildResult run_child(const std::vector<std::string>& words, const Environment& changes = {});

/// For tests that say which copies braid carries: `more`, and the program waits for relays
/// (BRAID_OPENING=wait) and every copy of 4 MiB is carried (BRAID_THRESHOLD). By default that
/// depends on how busy the machine is.
Environment waiting(Environment more = {});

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
