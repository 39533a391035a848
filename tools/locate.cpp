#include "tools/locate.h"

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <sys/auxv.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <system_error>
#include <vector>

namespace braid::tools {
namespace fs = std::filesystem;

fs::path install_root() {
  std::error_code missing;
  fs::path command = fs::read_symlink("/proc/self/exe", missing);
  // No /proc, as in a bare chroot: what the kernel was told to run.
  if (missing)
    command = fs::canonical(reinterpret_cast<const char*>(getauxval(AT_EXECFN)), missing);
  return command.parent_path().parent_path();
}

fs::path preload_library() { return install_root() / "lib" / "libbraid_preload.so"; }

fs::path emulator_folder() { return install_root() / "lib" / "braid" / "emulator"; }

Result<fs::path> find_emulated_driver() {
  const fs::path driver = emulator_folder() / "libcuda.so.1";
  if (fs::exists(driver)) return driver;
  return Status::error("there is no emulated driver at " + driver.string(), kReinstall);
}

std::string shell_command(const std::vector<std::string>& words) {
  const auto quoted = [](std::string word) {
    for (size_t at = 0; (at = word.find('\'', at)) != std::string::npos; at += 4)
      word.replace(at, 1, R"('\'')");
    return " '" + word + "'";
  };
  std::string command = "exec" + quoted(install_root() / "bin" / "braid");
  for (const std::string& word : words) command += quoted(word);
  return command;
}

bool take_out_preload_library() {
  const char* before = std::getenv("LD_PRELOAD");
  std::string left;
  std::string words = before != nullptr ? before : "";
  std::replace(words.begin(), words.end(), ' ', ':');
  std::istringstream files(words);
  for (std::string file; std::getline(files, file, ':');)
    if (!file.empty() && fs::path(file).filename() != preload_library().filename())
      left += (left.empty() ? "" : ":") + file;
  if (left == words) return false;
  setenv("LD_PRELOAD", left.c_str(), 1);
  return true;
}

namespace {

fs::path profile_folder() { return install_root() / "share" / "braid" / "profiles"; }

std::string what_to_write(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored))
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem());
  if (names.empty())
    return "The profiles that belong to braid are missing from " + folder.string() +
           ": move or install bin, lib and share together, or write the path of a JSON profile";
  std::sort(names.begin(), names.end());
  return fmt::format("Write the path of a JSON profile, or one of: {}", fmt::join(names, ", "));
}

// `what` it is, in errors: "server profile".
Result<fs::path> find_in(const fs::path& folder, const std::string& what,
                         const std::string& name_or_path) {
  const bool is_path =
      name_or_path.find('/') != std::string::npos || name_or_path.ends_with(".json");
  const fs::path path = is_path ? fs::path(name_or_path) : folder / (name_or_path + ".json");
  std::error_code ignored;
  if (fs::is_regular_file(path, ignored)) return fs::absolute(path);
  if (fs::exists(path, ignored))
    return Status::error("'" + path.string() + "' is no regular file, as a " + what + " is",
                         what_to_write(folder));
  return Status::error("there is no " + what + " '" + name_or_path + "'", what_to_write(folder));
}

}  // namespace

Result<fs::path> find_profile(const std::string& name_or_path) {
  return find_in(profile_folder(), "server profile", name_or_path);
}

Result<fs::path> find_cluster(const std::string& name_or_path) {
  return find_in(profile_folder() / "clusters", "cluster profile", name_or_path);
}

}  // namespace braid::tools
