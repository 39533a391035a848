#include "tools/program_file.h"

#include <elf.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

namespace braid::tools {

namespace fs = std::filesystem;

ProgramFile find_program(const std::string& name) {
  if (name.find('/') != std::string::npos)
    return {name, access(name.c_str(), F_OK) == 0 ? 0 : errno};
  const char* path = std::getenv("PATH");
  if (path == nullptr) return {};
  std::istringstream folders(path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const fs::path file = fs::path(folder.empty() ? "." : folder) / name;
    if (access(file.c_str(), F_OK) == 0) return {file, 0};
  }
  return {{}, ENOENT};
}

Status cannot_start(const std::string& name, int error) {
  if (error == ENOENT || error == ENOTDIR)
    return Status::error("there is no program '" + name + "'",
                         "Check the name, and the PATH; a script also needs its interpreter");
  return Status::error("'" + name + "' cannot be run: " + std::strerror(error),
                       "It must be an executable file");
}

Status no_program(const std::string& command, const std::vector<std::string>& before) {
  if (before.empty())
    return Status::error("no program was given after --",
                         "Write it there: braid " + command + " -- python3 serve.py");
  std::string words = "braid " + command + " --";
  for (const std::string& word : before) words += " " + word;
  return Status::error("'" + before.front() + "' stands before --", "Write: " + words);
}

namespace {

/// False: it is none that this machine runs.
bool read_head(std::ifstream& in, Elf64_Ehdr& head) {
  return in.read(reinterpret_cast<char*>(&head), sizeof head) &&
         std::memcmp(head.e_ident, ELFMAG, SELFMAG) == 0 && head.e_ident[EI_CLASS] == ELFCLASS64 &&
         head.e_phentsize == sizeof(Elf64_Phdr);
}

}  // namespace

bool is_static(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  Elf64_Ehdr head{};
  if (!read_head(in, head)) return false;
  in.seekg(static_cast<std::streamoff>(head.e_phoff));
  for (int i = 0; i < head.e_phnum; ++i) {
    Elf64_Phdr part{};
    if (!in.read(reinterpret_cast<char*>(&part), sizeof part)) return false;
    if (part.p_type == PT_INTERP) return false;
  }
  return true;
}

bool gains_rights(const fs::path& file) {
  struct stat facts {};
  struct statvfs mount {};
  if (stat(file.c_str(), &facts) != 0) return false;
  const bool is_ignored = prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ||
                          (statvfs(file.c_str(), &mount) == 0 && (mount.f_flag & ST_NOSUID) != 0);
  if (is_ignored) return false;
  constexpr mode_t kSetsGroup = S_ISGID | S_IXGRP;  // without S_IXGRP it means something else
  const bool is_other_user = (facts.st_mode & S_ISUID) != 0 && facts.st_uid != getuid();
  const bool is_other_group =
      (facts.st_mode & kSetsGroup) == kSetsGroup && facts.st_gid != getgid();
  const bool is_capable =
      getuid() != 0 && getxattr(file.c_str(), "security.capability", nullptr, 0) > 0;
  if (!is_other_user && !is_other_group && !is_capable) return false;
  std::ifstream in(file, std::ios::binary);
  Elf64_Ehdr head{};
  return !in || read_head(in, head);  // it may be executable and not readable
}

}  // namespace braid::tools
