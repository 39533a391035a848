#include "transfer/exports.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/try.h"
#include "transfer/directory/names.h"

namespace braid::transfer {
namespace {

/// Beneath the folder, or not at all.
int open_beneath(int folder, const std::string& path, uint64_t flags) {
  open_how how{};
  how.flags = flags | O_CLOEXEC;
  how.mode = (flags & O_CREAT) != 0 ? 0644 : 0;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  return static_cast<int>(syscall(SYS_openat2, folder, path.c_str(), &how, sizeof how));
}

/// The number of a file that is open is not given to another one.
bool is_same(const Descriptor& known, const struct stat& about) {
  struct stat other {};
  return fstat(known.get(), &other) == 0 && other.st_dev == about.st_dev &&
         other.st_ino == about.st_ino;
}

Cause open_within(int folder, const std::string& path, Rights wanted, OpenFile& opened,
                  struct stat& about) {
  const bool writes = (wanted & kMayWrite) != 0;
  const uint64_t access = writes ? O_RDWR : O_RDONLY;
  opened.rights = wanted;
  opened.cached =
      Descriptor(open_beneath(folder, path, access | O_NONBLOCK | (writes ? O_CREAT : 0)));
  if (!opened.cached.is_open())
    return errno == EMFILE || errno == ENFILE ? Cause::kTooMuch : Cause::kNoFile;
  if (fstat(opened.cached.get(), &about) != 0 || !S_ISREG(about.st_mode)) return Cause::kNoFile;
  opened.direct = Descriptor(open_beneath(folder, path, access | O_DIRECT));
  // Another file may have come to this path between the two.
  if (opened.direct.is_open() && !is_same(opened.direct, about)) opened.direct = Descriptor();
  return Cause::kNone;
}

}  // namespace

Status Exports::add(const std::string& name, const std::string& folder, Rights rights) {
  BRAID_TRY(check_bare_name(name));
  if (folders_.contains(name) || folders_.size() >= kExportsMax)
    return Status::error("there is a folder exported as '" + name + "' already, or too many are");
  Descriptor descriptor(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!descriptor.is_open())
    return Status::error("the folder '" + folder + "' cannot be opened: " + std::strerror(errno));
  if (const Descriptor itself(open_beneath(descriptor.get(), ".", O_PATH)); !itself.is_open())
    return Status::error("this kernel cannot keep paths within a folder (openat2)",
                         "It needs Linux 5.6 or newer");
  folders_[name] = {std::move(descriptor), rights};
  return {};
}

Cause Exports::open(const std::string& path, Rights wanted, uint64_t& file, uint64_t& size_bytes) {
  const size_t slash = std::min(path.find('/'), path.size());
  const auto folder = folders_.find(path.substr(0, slash));
  if (folder == folders_.end() || slash + 1 >= path.size()) return Cause::kNoFile;
  if (wanted == kNoRights || (folder->second.rights & wanted) != wanted) return Cause::kNotAllowed;
  OpenFile opened;
  struct stat about {};
  const Cause cause =
      open_within(folder->second.descriptor.get(), path.substr(slash + 1), wanted, opened, about);
  if (cause != Cause::kNone) return cause;
  size_bytes = static_cast<uint64_t>(about.st_size);
  const auto known = numbers_.find({path, wanted});
  if (known != numbers_.end() && is_same(files_.at(known->second).cached, about)) {
    file = known->second;
    return Cause::kNone;
  }
  if (files_.size() >= kFilesMax) return Cause::kTooMuch;
  file = next_++;
  files_[file] = std::move(opened);
  numbers_[{path, wanted}] = file;
  return Cause::kNone;
}

const OpenFile* Exports::find(uint64_t file) const {
  const auto found = files_.find(file);
  return found == files_.end() ? nullptr : &found->second;
}

std::vector<ExportDescription> Exports::describe() const {
  std::vector<ExportDescription> all;
  for (const auto& [name, folder] : folders_) all.push_back({name, folder.rights});
  return all;
}

}  // namespace braid::transfer
