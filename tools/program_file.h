// The file of the program that a user wants to run, looked at before it is started.
#pragma once

#include <filesystem>
#include <string>

namespace braid::tools {

struct ProgramFile {
  std::filesystem::path path;  ///< empty where `execvp` has a search path of its own
  int error = 0;               ///< errno's: why there is none; 0: nothing is known against it
};

/// As execvp would find it.
ProgramFile find_program(const std::string& name);

/// An ELF file without a loader: nothing can be preloaded into it. False for scripts, and for what
/// cannot be read.
bool is_static(const std::filesystem::path& file);

}  // namespace braid::tools
