#include "fabric/ofi/library.h"

#include <dlfcn.h>

#include "fabric/ofi/robust_locks.h"

namespace braid::fabric::ofi {
namespace {

static_assert(FI_MAJOR_VERSION == 1 && FI_MINOR_VERSION >= 9 && FI_MINOR_VERSION < 20,
              "fi_info of these headers is not that of the symbols below");

template <typename Function>
void find(void* library, const char* name, const char* version, Function& function, bool& found) {
  function = reinterpret_cast<Function>(dlvsym(library, name, version));
  found = found && function != nullptr;
}

Result<const Library*> open() {
  static Library opened;
  void* library = dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return Status::error("libfabric.so.1 cannot be loaded: " + std::string(dlerror()),
                         "Install libfabric (libfabric1 on Debian and Ubuntu)");
  bool found = true;
  find(library, "fi_getinfo", "FABRIC_1.3", opened.getinfo, found);
  find(library, "fi_freeinfo", "FABRIC_1.3", opened.freeinfo, found);
  find(library, "fi_dupinfo", "FABRIC_1.3", opened.dupinfo, found);
  find(library, "fi_fabric", "FABRIC_1.1", opened.fabric, found);
  find(library, "fi_strerror", "FABRIC_1.0", opened.strerror, found);
  find(library, "fi_version", "FABRIC_1.0", opened.version, found);
  if (!found)
    return Status::error("this libfabric.so.1 lacks a function", "Install version 1.9 or newer");
  opened.handle = library;
  // What they know of its shm is that of this version.
  if (opened.version() == FI_VERSION(1, 17))
    opened.has_robust_locks = make_locks_robust(library).ok();
  return &opened;
}

}  // namespace

std::string Library::describe(int64_t answer) const {
  const int error = static_cast<int>(answer < 0 ? -answer : answer);
  return std::string(strerror(error)) + " (" + std::to_string(error) + ")";
}

Result<const Library*> library() {
  static const Result<const Library*> opened = open();
  return opened;
}

}  // namespace braid::fabric::ofi
