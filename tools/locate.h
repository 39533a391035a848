// Where braid's own files are: beside the command, in the build tree as in an installation
// (bin/braid, lib/libbraid_preload.so, lib/braid/emulator/libcuda.so.1,
// share/braid/profiles/NAME.json).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/status.h"

namespace braid::tools {

/// The remedy if a part of braid is missing, or of another build: for those who have a package, and
/// those who have built it.
inline constexpr const char* kReinstall =
    "Install braid's package again, or build all of it: make build";

/// The folder that holds bin/, lib/ and share/.
std::filesystem::path install_root();

std::filesystem::path preload_library();
std::filesystem::path emulator_folder();

/// Takes the preload library out of LD_PRELOAD, where it is inside `braid run -- bash`. False:
/// nothing changed.
bool take_out_preload_library();

/// A shell's command that becomes `braid` with these words.
std::string shell_command(const std::vector<std::string>& words);

/// The emulated driver's library; an error where a half of braid is not there.
Result<std::filesystem::path> find_emulated_driver();

/// The absolute path of a profile, given its name ("h20x8") or a path to a JSON file. The error
/// names what was asked for and lists the profiles there are.
Result<std::filesystem::path> find_profile(const std::string& name_or_path);
/// The same of a cluster ("limited-rails"), as `braid simulate transfer` has them.
Result<std::filesystem::path> find_cluster(const std::string& name_or_path);

}  // namespace braid::tools
