#include "fabric/ofi/stand_ins.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "fabric/ofi/doorbell.h"
#include "fabric/ofi/imports.h"

namespace braid::fabric::ofi {
namespace {

thread_local StandIns* current = nullptr;

/// The front of libfabric's struct smr_region (include/ofi_shm.h).
struct RegionHead {
  enum Copies : uint8_t { kNotKnown, kAllowed, kRefused };  // SMR_CMA_CAP_NA, ...
  uint8_t version, reserved;
  uint16_t flags;
  int32_t process;
  Copies copies, copies_to_itself;
  uint32_t buffers_max;
  void* base;
  // Further fields, and the data that they refer to, are copied or stay zero.
  std::array<std::byte, 256 - 24> further;
};
static_assert(sizeof(RegionHead) == 256 && offsetof(RegionHead, process) == 4 &&
              offsetof(RegionHead, base) == 16);

/// Whether memory of this process can be copied (CMA): then no such address is there.
bool may_copy(pid_t process) {
  std::byte byte{};
  const iovec here{&byte, 1}, there{nullptr, 1};
  return process_vm_readv(process, &here, 1, &there, 1, 0) < 0 && errno == EFAULT;
}

/// "PROCESS:USER:NUMBER", as endpoints are named. Other files of libfabric have other names.
bool names_endpoint(std::string_view name) {
  return !name.empty() && name.find_first_not_of("0123456789:") == name.npos;
}

/// Makes a region like that of `like`, the file of an endpoint of our own, but of another process.
/// -1: none could be made.
int make_region(const std::string& like, pid_t process) {
  RegionHead head{};
  struct stat about {};
  const int own = shm_open(like.c_str(), O_RDONLY | O_CLOEXEC, 0);
  const bool is_read = own >= 0 && fstat(own, &about) == 0 &&
                       pread(own, &head, sizeof head, 0) == ssize_t{sizeof head};
  if (own >= 0) close(own);
  if (!is_read) return -1;
  // Endpoints take from each other's regions whether copies are allowed, and remember it.
  if (head.copies == RegionHead::kNotKnown)
    head.copies = may_copy(process) ? RegionHead::kAllowed : RegionHead::kRefused;
  head.process = process;
  head.base = nullptr;
  const int made = memfd_create("braid-gone-endpoint", MFD_CLOEXEC);
  if (made < 0) return -1;
  if (ftruncate(made, about.st_size) == 0 && pwrite(made, &head, sizeof head, 0) == sizeof head)
    return made;
  close(made);
  return -1;
}

// ---- What libfabric calls ----

int open_file(const char* name, int flags, mode_t mode) {
  const int file = shm_open(name, flags, mode);
  if (current == nullptr || (flags & O_CREAT) != 0 || !names_endpoint(name)) return file;
  return current->opened(name, file);
}

/// stat for libfabric: uses the file that it has just opened, since its path may be gone.
int look_at(const char* path, struct stat* about) {
  const int opened = current != nullptr ? current->last_opened(path) : -1;
  return opened >= 0 ? fstat(opened, about) : stat(path, about);
}

/// The same, as programs for glibc before 2.33 call it.
int look_at_version(int /*version*/, const char* path, struct stat* about) {
  return look_at(path, about);
}

}  // namespace

Status stand_in_for_missing_files(void* libfabric) {
  const auto replace = [&](const char* name, auto* function) {
    return replace_import(libfabric, name, reinterpret_cast<void*>(function)).status();
  };
  Status look = replace("stat", look_at);
  if (!look.ok()) look = replace("__xstat", look_at_version);
  return look.ok() ? replace("shm_open", open_file) : look;
}

StandIns::StandIns(Bytes endpoint) : endpoint_(endpoint) { current = this; }

StandIns::~StandIns() { current = nullptr; }

int StandIns::opened(const char* name, int file) {
  if (file < 0) {
    file = make_region(file_of(endpoint_), static_cast<pid_t>(std::atol(name)));
    if (file >= 0) names_.emplace_back(name);
  }
  last_name_ = name;
  last_opened_ = file;
  return file;
}

int StandIns::last_opened(std::string_view path) const {
  constexpr std::string_view kFolder = "/dev/shm/";
  const bool is_it = path.starts_with(kFolder) && path.substr(kFolder.size()) == last_name_;
  return is_it ? last_opened_ : -1;
}

void StandIns::free_places(fid_av& peers) {
  for (const std::string& name : names_) {
    const std::string address = endpoint_of(name);
    fi_addr_t place = FI_ADDR_UNSPEC;  // the place that it has already
    if (fi_av_insert(&peers, address.c_str(), 1, &place, 0, nullptr) == 1)
      fi_av_remove(&peers, &place, 1, 0);
  }
  names_.clear();
}

}  // namespace braid::fabric::ofi
