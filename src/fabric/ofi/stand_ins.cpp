#include "fabric/ofi/stand_ins.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <mutex>
#include <optional>
#include <string_view>

#include "base/try.h"
#include "fabric/ofi/doorbell.h"
#include "fabric/ofi/imports.h"

namespace braid::fabric::ofi {
namespace {

thread_local StandIns* current = nullptr;

/// Where the one that this process has lies; null: it has none.
std::atomic<RegionHead*> stand_in = nullptr;

/// The number of a file that is none: that of no descriptor, so that closing it does nothing.
constexpr int kNoFile = std::numeric_limits<int>::max();

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

/// Endpoints take from each other's regions whether copies are allowed, and remember it.
RegionHead::Copies copies_from(pid_t process, const RegionHead* own) {
  if (own != nullptr && own->copies != RegionHead::kNotKnown) return own->copies;
  return may_copy(process) ? RegionHead::kAllowed : RegionHead::kRefused;
}

constinit Before<int(const char*, int, mode_t)> shm_open_before;
constinit Before<int(const char*, struct stat*)> stat_before;
constinit Before<int(int, const char*, struct stat*)> stat_version_before;
constinit Before<void*(void*, size_t, int, int, int, off_t)> mmap_before;
constinit Before<int(void*, size_t)> munmap_before;

// ---- What libfabric calls ----

int open_file(const char* name, int flags, mode_t mode) {
  const int file = shm_open_before(name, flags, mode);
  if (current == nullptr) return file;
  const bool is_of_peer = (flags & O_CREAT) == 0 && names_endpoint(name);
  return is_of_peer ? current->opened(name, file) : current->opened_other(file);
}

/// Looks at the file that libfabric has just opened, since its path may be gone. None: it is not at
/// this path.
std::optional<int> look_at_opened(const char* path, struct stat* about) {
  const int opened = current != nullptr ? current->last_opened(path) : -1;
  if (opened < 0) return std::nullopt;
  if (opened != kNoFile) return fstat(opened, about);
  *about = {};
  about->st_size = static_cast<off_t>(stand_in.load()->size_bytes);
  return 0;
}

int look_at(const char* path, struct stat* about) {
  const std::optional<int> answer = look_at_opened(path, about);
  return answer ? *answer : stat_before(path, about);
}

/// The same, as programs for glibc before 2.33 call it.
int look_at_version(int version, const char* path, struct stat* about) {
  const std::optional<int> answer = look_at_opened(path, about);
  return answer ? *answer : stat_version_before(version, path, about);
}

void* map(void* at, size_t size_bytes, int rights, int flags, int file, off_t offset) {
  void* const instead = current != nullptr ? current->stand_in_for(file) : nullptr;
  if (instead != nullptr) return instead;
  void* const mapped = mmap_before(at, size_bytes, rights, flags, file, offset);
  if (mapped != MAP_FAILED || current == nullptr || !current->miss(file)) return mapped;
  return current->stand_in_for(file);
}

/// The stand-in stays for the next one.
int unmap(void* at, size_t size_bytes) {
  return at != nullptr && at == stand_in.load() ? 0 : munmap_before(at, size_bytes);
}

}  // namespace

Status stand_in_for_missing_files(void* libfabric) {
  Status look = stat_before.replace(libfabric, "stat", look_at);
  if (!look.ok()) look = stat_version_before.replace(libfabric, "__xstat", look_at_version);
  if (!look.ok()) return look;
  BRAID_TRY(mmap_before.replace(libfabric, "mmap", map));
  BRAID_TRY(munmap_before.replace(libfabric, "munmap", unmap));
  return shm_open_before.replace(libfabric, "shm_open", open_file);
}

Status prepare_stand_in(const RegionHead& like) {
  static std::mutex preparing;
  const std::lock_guard lock(preparing);
  if (stand_in.load() != nullptr) return {};
  void* const memory = mmap(nullptr, like.size_bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    return Status::error("shm: a mapping of the size of an endpoint: " +
                         std::string(std::strerror(errno)));
  auto* const region = static_cast<RegionHead*>(memory);
  *region = like;
  region->base = nullptr;
  region->map = nullptr;
  region->signal = 0;
  pthread_spin_init(&region->lock, PTHREAD_PROCESS_PRIVATE);
  stand_in = region;
  return {};
}

StandIns::StandIns(const RegionHead* own) : own_(own) { current = this; }

StandIns::~StandIns() { current = nullptr; }

int StandIns::opened(const char* name, int file) {
  RegionHead head;
  if (file >= 0 && !read_region(file, head)) {
    close(file);
    file = -1;
  }
  last_name_ = name;
  last_opened_ = file >= 0 || stand_in.load() == nullptr ? file : kNoFile;
  is_last_missed_ = false;
  miss(kNoFile);
  return last_opened_;
}

int StandIns::last_opened(std::string_view path) const {
  constexpr std::string_view kFolder = "/dev/shm/";
  const bool is_it = path.starts_with(kFolder) && path.substr(kFolder.size()) == last_name_;
  return is_it ? last_opened_ : -1;
}

bool StandIns::miss(int file) {
  RegionHead* const region = stand_in.load();
  if (file < 0 || file != last_opened_ || region == nullptr) return false;
  const auto process = static_cast<pid_t>(std::atol(last_name_.c_str()));
  // Another thread may do so for its endpoint. Neither's libfabric minds whose number it reads.
  std::atomic_ref(region->copies).store(copies_from(process, own_));
  std::atomic_ref(region->process).store(process);
  names_.push_back(last_name_);
  return is_last_missed_ = true;
}

void* StandIns::stand_in_for(int file) const {
  return file >= 0 && file == last_opened_ && is_last_missed_ ? stand_in.load() : nullptr;
}

int StandIns::opened_other(int file) {
  last_opened_ = -1;
  return file;
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
