// The file of the program that a user wants to run, looked at before it is started.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/status.h"

namespace braid::tools {

struct ProgramFile {
  std::filesystem::path path;  ///< empty where `execvp` has a search path of its own
  int error = 0;               ///< errno's: why there is none; 0: nothing is known against it
};

/// As execvp would find it.
ProgramFile find_program(const std::string& name);

/// Why the program has not been started; `error` is errno's.
Status cannot_start(const std::string& name, int error);

/// What `braid COMMAND` says if no program stands behind --. `before` are the words in front of it
/// that are none of its options.
Status no_program(const std::string& command, const std::vector<std::string>& before);

/// An ELF file without a loader: nothing can be preloaded into it. False for scripts, and for what
/// cannot be read.
bool is_static(const std::filesystem::path& file);

/// An ELF file that runs with the rights of another user or group than this process's, or with
/// capabilities of its own: the loader preloads nothing into it. The kernel takes no such rights
/// from scripts, and none where it ignores them (`nosuid`, PR_SET_NO_NEW_PRIVS).
bool gains_rights(const std::filesystem::path& file);

}  // namespace braid::tools
