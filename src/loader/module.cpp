#include "loader/module.h"

#include <dlfcn.h>
#include <unistd.h>

#include <climits>
#include <cstring>

#include "loader/libc_dlsym.h"

namespace braid::loader {
namespace {

// The program's own name is empty, here and for dlopen.
void* open(const char* path) { return dlopen(path, RTLD_LAZY | RTLD_NOLOAD); }

struct Search {
  const link_map& module;
  std::span<const unsigned char> bytes;
};

bool has_constant(const dl_phdr_info& module, const ElfW(Phdr) & segment,
                  std::span<const unsigned char> bytes) {
  if (segment.p_type != PT_LOAD || (segment.p_flags & (PF_R | PF_W)) != PF_R) return false;
  const auto* begin = reinterpret_cast<const void*>(module.dlpi_addr + segment.p_vaddr);
  return memmem(begin, segment.p_filesz, bytes.data(), bytes.size()) != nullptr;
}

int visit(dl_phdr_info* info, size_t, void* data) {
  const auto& search = *static_cast<const Search*>(data);
  if (info->dlpi_addr != search.module.l_addr ||
      std::strcmp(info->dlpi_name, search.module.l_name) != 0)
    return 0;
  for (int segment = 0; segment < info->dlpi_phnum; ++segment)
    if (has_constant(*info, info->dlpi_phdr[segment], search.bytes)) return 1;
  return 0;
}

bool is_path_named(const char* path, const char* prefix) noexcept {
  const char* const slash = std::strrchr(path, '/');
  return std::strncmp(slash != nullptr ? slash + 1 : path, prefix, std::strlen(prefix)) == 0;
}

struct Named {
  const char* prefix;
  std::string path;
};

int visit_named(dl_phdr_info* info, size_t, void* data) noexcept try {
  auto& named = *static_cast<Named*>(data);
  if (!is_path_named(info->dlpi_name, named.prefix)) return 0;
  named.path = info->dlpi_name;
  return 1;
} catch (...) {
  return 0;
}

}  // namespace

const link_map* module_of(const void* address) noexcept {
  Dl_info info;
  void* module = nullptr;
  if (dladdr1(address, &info, &module, RTLD_DL_LINKMAP) == 0) return nullptr;
  return static_cast<const link_map*>(module);
}

bool is_named(const link_map& module, const char* prefix) noexcept {
  return is_path_named(module.l_name, prefix);
}

const link_map* module_named(const char* prefix) noexcept {
  Named named{prefix, {}};
  void* const library =
      dl_iterate_phdr(visit_named, &named) != 0 ? open(named.path.c_str()) : nullptr;
  link_map* module = nullptr;
  if (library == nullptr) return nullptr;
  dlinfo(library, RTLD_DI_LINKMAP, &module);
  dlclose(library);
  return module;
}

void* find_in(const link_map& module, const char* symbol) noexcept {
  void* const opened = open(module.l_name);
  if (opened == nullptr) return nullptr;
  void* const found = libc_dlsym(opened, symbol);
  dlclose(opened);
  dlerror();  // so that the program does not see this error
  return found;
}

void keep_loaded(const link_map& module) noexcept { open(module.l_name); }

bool has_constant(const link_map& module, std::span<const unsigned char> bytes) noexcept {
  Search search{module, bytes};
  return dl_iterate_phdr(visit, &search) != 0;
}

std::string path_of(const link_map& module) {
  if (*module.l_name != '\0') return module.l_name;
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  return length > 0 ? std::string(path, static_cast<size_t>(length)) : "the program";
}

}  // namespace braid::loader
