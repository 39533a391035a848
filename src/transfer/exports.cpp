#include "transfer/exports.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/try.h"
#include "transfer/directory/names.h"
#include "transfer/storage.h"

namespace braid::transfer {
namespace {

/// Opens a path beneath the folder; a path that leads out of it fails.
int open_beneath(int folder, const std::string& path, uint64_t flags) {
  open_how how{};
  how.flags = flags | O_CLOEXEC;
  how.mode = (flags & O_CREAT) != 0 ? 0644 : 0;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  return static_cast<int>(syscall(SYS_openat2, folder, path.c_str(), &how, sizeof how));
}

bool look_at(const Descriptor& file, struct statx& about) {
  return statx(file.get(), "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_BTIME, &about) == 0;
}

bool is_same(const struct statx& one, const struct statx& other) {
  return one.stx_ino == other.stx_ino && one.stx_dev_major == other.stx_dev_major &&
         one.stx_dev_minor == other.stx_dev_minor;
}

Cause cause_of_open(int error) {
  if (error == EMFILE || error == ENFILE) return Cause::kTooMuch;
  const Cause cause = cause_of_storage(error);
  return is_of_storage(cause) ? cause : Cause::kNoFile;
}

}  // namespace

size_t Exports::usual_open_max() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return kOpenMax;
  return std::clamp<size_t>(limit.rlim_cur / 8, 1, kOpenMax);
}

Status Exports::add(const std::string& name, const std::string& folder, Rights rights) {
  BRAID_TRY(check_bare_name(name));
  if (folders_.contains(name))
    return Status::error("there is a folder exported as '" + name + "' already");
  if (folders_.size() >= kExportsMax)
    return Status::error("there are " + std::to_string(kExportsMax) + " exported folders already",
                         "An engine exports no more than that");
  Descriptor descriptor(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!descriptor.is_open())
    return Status::error("the folder '" + folder + "' cannot be opened: " + std::strerror(errno),
                         errno == ENOENT ? "Make the folder, or name another" : "Name another");
  if (const Descriptor itself(open_beneath(descriptor.get(), ".", O_PATH)); !itself.is_open())
    return Status::error("this kernel cannot keep paths within a folder (openat2)",
                         "It needs Linux 5.6 or newer");
  folders_[name] = {std::move(descriptor), rights};
  return {};
}

// ---- Paths ----

/// Null: there is no such folder, or the path names nothing within it.
const Exports::Folder* Exports::folder_of(const std::string& path, std::string& within) const {
  const size_t slash = std::min(path.find('/'), path.size());
  const auto folder = folders_.find(path.substr(0, slash));
  if (folder == folders_.end() || slash + 1 >= path.size()) return nullptr;
  within = path.substr(slash + 1);
  return &folder->second;
}

Cause Exports::look_up(const Folder& folder, const std::string& within, Rights wanted, bool makes,
                       Found& found) {
  const int at = folder.descriptor.get();
  const uint64_t access = (wanted & kMayWrite) != 0 ? O_RDWR : O_RDONLY;
  found.file.cached = Descriptor(
      open_beneath(at, within, access | O_NONBLOCK | (makes ? uint64_t{O_CREAT} : uint64_t{0})));
  if (!found.file.cached.is_open()) return cause_of_open(errno);
  struct statx about {};
  if (!look_at(found.file.cached, about) || !S_ISREG(about.stx_mode)) return Cause::kNoFile;
  found.size_bytes = about.stx_size;
  found.identity = {makedev(about.stx_dev_major, about.stx_dev_minor), about.stx_ino, 0, 0};
  if ((about.stx_mask & STATX_BTIME) != 0) {
    found.identity.born_s = about.stx_btime.tv_sec;
    found.identity.born_ns = about.stx_btime.tv_nsec;
  }
  found.file.direct = Descriptor(open_beneath(at, within, access | O_DIRECT));
  // Another file may have come to this path between the two opens.
  struct statx other {};
  if (!look_at(found.file.direct, other) || !is_same(about, other))
    found.file.direct = Descriptor();
  return Cause::kNone;
}

/// Closes unused files if there are no descriptors left.
Cause Exports::look_up(const std::string& path, Rights wanted, bool makes, Found& found) {
  std::string within;
  const Folder* folder = folder_of(path, within);
  if (folder == nullptr) return Cause::kNoFile;
  if (wanted == kNoRights || (folder->rights & wanted) != wanted) return Cause::kNotAllowed;
  const Cause cause = look_up(*folder, within, wanted, makes, found);
  if (cause != Cause::kTooMuch || !close_idle(0)) return cause;
  return look_up(*folder, within, wanted, makes, found);
}

// ---- Files ----

Cause Exports::open(const std::string& path, Rights wanted, uint64_t& file, uint64_t& size_bytes) {
  Found found;
  const Cause cause = look_up(path, wanted, (wanted & kMayWrite) != 0, found);
  if (cause != Cause::kNone) return cause;
  size_bytes = found.size_bytes;
  uint64_t& number = numbers_[{path, wanted}];
  auto known = files_.find(number);
  const bool is_known = known != files_.end() && known->second.identity == found.identity &&
                        (known->second.open != nullptr || found.identity.is_lasting());
  if (!is_known) {
    number = next_++;
    closed_.push_front(number);
    known =
        files_.emplace(number, File{path, wanted, found.identity, nullptr, closed_.begin()}).first;
  }
  file = number;
  keep_open(file, known->second, std::move(found.file));
  if (files_.size() > files_max_) forget_oldest();
  return Cause::kNone;
}

Cause Exports::use(uint64_t number, Rights right, OpenFilePointer& opened) {
  const auto known = files_.find(number);
  if (known == files_.end()) return Cause::kNoFile;
  File& file = known->second;
  if ((file.rights & right) != right) return Cause::kNotAllowed;
  if (file.open == nullptr) {
    Found found;
    const Cause cause = look_up(file.path, file.rights, false, found);
    if (cause != Cause::kNone) return cause;
    const bool is_the_same = found.identity == file.identity && found.identity.is_lasting();
    if (!is_the_same) return Cause::kNoFile;
    keep_open(number, file, std::move(found.file));
  }
  open_.splice(open_.begin(), open_, file.use);
  opened = file.open;
  return Cause::kNone;
}

/// Keeps the file open, as the one that was used last.
void Exports::keep_open(uint64_t number, File& file, OpenFile&& opened) {
  if (file.open == nullptr) {
    file.open = std::make_shared<const OpenFile>(std::move(opened));
    closed_.erase(file.use);
    file.use = open_.insert(open_.begin(), number);
  } else {
    open_.splice(open_.begin(), open_, file.use);
  }
  const OpenFilePointer held = file.open;
  (void)close_idle(open_max_);
}

/// Closes unused files until at most `open_max` are open or the others are in use. True: some were
/// closed.
bool Exports::close_idle(size_t open_max) {
  const size_t before = open_.size();
  for (auto each = open_.end(); open_.size() > open_max && each != open_.begin();) {
    --each;
    File& file = files_.at(*each);
    if (file.open.use_count() > 1) continue;
    file.open = nullptr;
    const auto closed = each++;
    closed_.splice(closed_.begin(), open_, closed);
  }
  return open_.size() < before;
}

void Exports::forget_oldest() {
  if (closed_.empty()) return;
  const auto oldest = files_.find(closed_.back());
  const auto number = numbers_.find({oldest->second.path, oldest->second.rights});
  if (number != numbers_.end() && number->second == oldest->first) numbers_.erase(number);
  files_.erase(oldest);
  closed_.pop_back();
}

std::vector<ExportDescription> Exports::describe() const {
  std::vector<ExportDescription> all;
  for (const auto& [name, folder] : folders_) all.push_back({name, folder.rights});
  return all;
}

}  // namespace braid::transfer
