#include "tools/program_file.h"

#include <elf.h>
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

bool is_static(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  Elf64_Ehdr head{};
  if (!in.read(reinterpret_cast<char*>(&head), sizeof head) ||
      std::memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_ident[EI_CLASS] != ELFCLASS64 ||
      head.e_phentsize != sizeof(Elf64_Phdr))
    return false;
  in.seekg(static_cast<std::streamoff>(head.e_phoff));
  for (int i = 0; i < head.e_phnum; ++i) {
    Elf64_Phdr part{};
    if (!in.read(reinterpret_cast<char*>(&part), sizeof part)) return false;
    if (part.p_type == PT_INTERP) return false;
  }
  return true;
}

}  // namespace braid::tools
