#include "fabric/ofi/imports.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>

namespace braid::fabric::ofi {
namespace {

/// The value of an entry of the library's dynamic section; 0: there is none.
ElfW(Addr) find(const link_map& module, ElfW(Sxword) tag) {
  for (const ElfW(Dyn)* entry = module.l_ld; entry->d_tag != DT_NULL; ++entry)
    if (entry->d_tag == tag) return entry->d_un.d_ptr;
  return 0;
}

/// The place where the library keeps the function's address; null: it imports no such function.
void** slot_of(const link_map& module, const char* name) {
  const auto* relocations = reinterpret_cast<const ElfW(Rela)*>(find(module, DT_JMPREL));
  const auto* symbols = reinterpret_cast<const ElfW(Sym)*>(find(module, DT_SYMTAB));
  const auto* names = reinterpret_cast<const char*>(find(module, DT_STRTAB));
  if (find(module, DT_PLTREL) != DT_RELA || symbols == nullptr || names == nullptr) return nullptr;
  for (size_t i = 0; i < find(module, DT_PLTRELSZ) / sizeof *relocations; ++i) {
    const ElfW(Sym)& symbol = symbols[ELF64_R_SYM(relocations[i].r_info)];
    if (std::strcmp(names + symbol.st_name, name) == 0)
      return reinterpret_cast<void**>(module.l_addr + relocations[i].r_offset);
  }
  return nullptr;
}

/// Exchanges the function there. The page is read-only since the loader has filled it (RELRO).
Result<void*> exchange(void** slot, void* function) {
  const auto page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  void* const page = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(slot) & ~(page_bytes - 1));
  if (mprotect(page, page_bytes, PROT_READ | PROT_WRITE) != 0)
    return Status::error(std::strerror(errno));
  void* const before = std::atomic_ref<void*>(*slot).exchange(function);
  mprotect(page, page_bytes, PROT_READ);
  return before;
}

/// Calls it while nobody else of this process does: under the loader's lock, the only one that two
/// braid libraries have in common.
template <typename Call>
void call_alone(Call call) {
  dl_iterate_phdr(
      [](dl_phdr_info*, size_t, void* its) {
        (*static_cast<Call*>(its))();
        return 1;  // once
      },
      &call);
}

}  // namespace

Result<void*> replace_import(void* library, const char* name, void* replacement) {
  const std::string what = std::string("the import ") + name + " of libfabric";
  link_map* module = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, &module) != 0)
    return Status::error(what + ": " + std::string(dlerror()));
  void** const slot = slot_of(*module, name);
  if (slot == nullptr) return Status::error(what + " is not there");
  Result<void*> before = nullptr;
  call_alone([&] { before = exchange(slot, replacement); });
  if (!before.ok()) return Status::error(what + " cannot be changed: " + before.status().message());
  return before;
}

}  // namespace braid::fabric::ofi
