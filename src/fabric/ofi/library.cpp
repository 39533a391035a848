#include "fabric/ofi/library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <utility>

#include "fabric/ofi/guard.h"
#include "fabric/ofi/robust_locks.h"
#include "fabric/ofi/shm_files.h"
#include "fabric/ofi/stand_ins.h"
#include "fabric/wire.h"

namespace braid::fabric::ofi {
namespace {

static_assert(FI_MAJOR_VERSION == 1 && FI_MINOR_VERSION >= 9 && FI_MINOR_VERSION < 20,
              "fi_info of these headers is not that of the symbols below");

template <typename Function>
void find(void* library, const char* name, const char* version, Function& function, bool& found) {
  function = reinterpret_cast<Function>(dlvsym(library, name, version));
  found = found && function != nullptr;
}

/// What libfabric and the libraries that it loads read from the environment, once, when they start.
/// The user's settings stay, and children of the program do not see braid's.
///
/// rxm has receive buffers of 64 MB for each endpoint, and each peer has an endpoint. braid's
/// messages are few and small, so it asks for less. rxm looks for new connections every 10 ms, and
/// the first writes to a peer would wait for that. braid has it look every 2 ms.
///
/// Intel's PSM (libinfinipath), which Debian's libfabric is linked to, would handle SIGINT, SIGILL,
/// SIGABRT, SIGBUS, SIGSEGV and SIGTERM from its constructor on, in place of the program's own
/// handlers: the program would end with exit code 1 and a file *.btr, and no core. It asks for its
/// variable first. To give the handlers back after dlopen would leave them to every thread until
/// then, and one that runs meanwhile calls exit(), which waits for dlopen's lock.
class Settings {
 public:
  Settings() {
    static_assert(kBufferBytes >= kMessageBytesMax, "a message is to fit into one");
    for (size_t i = 0; i < std::size(kVariables); ++i)
      is_set_[i] = std::getenv(kVariables[i].first) == nullptr &&
                   setenv(kVariables[i].first, kVariables[i].second, 0) == 0;
  }
  ~Settings() {
    for (size_t i = 0; i < std::size(kVariables); ++i)
      if (is_set_[i]) unsetenv(kVariables[i].first);
  }
  Settings(const Settings&) = delete;
  Settings& operator=(const Settings&) = delete;

 private:
  static constexpr size_t kBufferBytes = 6144;
  static constexpr std::pair<const char*, const char*> kVariables[] = {
      {"FI_OFI_RXM_BUFFER_SIZE", "6144"},
      {"FI_OFI_RXM_CM_PROGRESS_INTERVAL", "2000"},
      {"FI_OFI_RXM_MSG_RX_SIZE", "64"},
      {"IPATH_NO_BACKTRACE", "1"}};
  bool is_set_[std::size(kVariables)] = {};
};

/// Providers read their settings in the first call of some functions. This one does little else.
void start(void* library) {
  decltype(&::fi_getparams) getparams = nullptr;
  decltype(&::fi_freeparams) freeparams = nullptr;
  bool found = true;
  find(library, "fi_getparams", "FABRIC_1.0", getparams, found);
  find(library, "fi_freeparams", "FABRIC_1.0", freeparams, found);
  fi_param* parameters = nullptr;
  int count = 0;
  if (found && getparams(&parameters, &count) == 0 && parameters != nullptr) freeparams(parameters);
}

Result<const Library*> open() {
  static Library opened;
  const Settings settings;
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
  start(library);
  opened.has_guards = guard_connections(library).ok();
  // These functions rely on the shm provider of this version.
  if (opened.version() == FI_VERSION(1, 17)) {
    opened.has_robust_locks = make_locks_robust(library).ok();
    opened.has_stand_ins = stand_in_for_missing_files(library).ok();
    (void)keep_shm_files(library);
  }
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
