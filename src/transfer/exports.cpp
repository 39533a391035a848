#include "transfer/exports.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
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

/// Opens what is no FIFO or device, where an open may wait for anything. A file that somebody has
/// leased (fcntl, F_SETLEASE) is waited for.
int open_regular(int folder, const std::string& path, uint64_t flags) {
  const int file = open_beneath(folder, path, flags | O_NONBLOCK);
  if (file >= 0 || errno != EWOULDBLOCK) return file;
  struct statx about {};
  const Descriptor there(open_beneath(folder, path, O_PATH));
  if (!look_at(there, about)) return -1;
  if (S_ISREG(about.stx_mode)) return open_beneath(folder, path, flags);
  errno = EWOULDBLOCK;
  return -1;
}

bool is_same(const struct statx& one, const struct statx& other) {
  return one.stx_ino == other.stx_ino && one.stx_dev_major == other.stx_dev_major &&
         one.stx_dev_minor == other.stx_dev_minor;
}

/// Others are asked over a network, or by a process (FUSE).
bool is_local(const Descriptor& file) {
  constexpr unsigned long kXfs = 0x58465342, kZfs = 0x2fc12fc1;
  struct statfs about {};
  if (fstatfs(file.get(), &about) != 0) return false;
  switch (static_cast<unsigned long>(about.f_type)) {
    case EXT4_SUPER_MAGIC:
    case BTRFS_SUPER_MAGIC:
    case F2FS_SUPER_MAGIC:
    case OVERLAYFS_SUPER_MAGIC:
    case TMPFS_MAGIC:
    case kXfs:
    case kZfs: return true;
    default: return false;
  }
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

Result<Descriptor> Exports::open_folder(const std::string& folder) {
  Descriptor descriptor(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!descriptor.is_open())
    return Status::error("the folder '" + folder + "' cannot be opened: " + std::strerror(errno),
                         errno == ENOENT ? "Make the folder, or name another" : "Name another");
  if (const Descriptor itself(open_beneath(descriptor.get(), ".", O_PATH)); !itself.is_open())
    return Status::error("this kernel cannot keep paths within a folder (openat2)",
                         "It needs Linux 5.6 or newer");
  return descriptor;
}

Status Exports::add(const std::string& name, Descriptor folder, Rights rights) {
  BRAID_TRY(check_bare_name(name));
  if (folders_.contains(name))
    return Status::error("there is a folder exported as '" + name + "' already");
  if (folders_.size() >= kExportsMax)
    return Status::error("there are " + std::to_string(kExportsMax) + " exported folders already",
                         "An engine exports no more than that");
  folders_[name] = {std::make_shared<const Descriptor>(std::move(folder)), rights,
                    folders_.size() + 1};
  return {};
}

Status Exports::add(const std::string& name, const std::string& folder, Rights rights) {
  BRAID_LET(descriptor, open_folder(folder));
  return add(name, std::move(descriptor), rights);
}

Exports::~Exports() {
  for (OpenFile& file : take_idle(0)) close(std::move(file));
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

/// In a thread of the opener.
void Exports::LookUp::run() {
  cause = Exports::open_at(folder->get(), within, wanted, makes, found);
}

Cause Exports::open_at(int folder, const std::string& within, Rights wanted, bool makes,
                       Found& found) {
  const uint64_t access = (wanted & kMayWrite) != 0 ? O_RDWR : O_RDONLY;
  found.file.cached =
      Descriptor(open_regular(folder, within, access | (makes ? uint64_t{O_CREAT} : uint64_t{0})));
  if (!found.file.cached.is_open()) return cause_of_open(errno);
  struct statx about {};
  if (!look_at(found.file.cached, about) || !S_ISREG(about.stx_mode)) return Cause::kNoFile;
  found.size_bytes = about.stx_size;
  found.identity = {makedev(about.stx_dev_major, about.stx_dev_minor), about.stx_ino, 0, 0};
  if ((about.stx_mask & STATX_BTIME) != 0) {
    found.identity.born_s = about.stx_btime.tv_sec;
    found.identity.born_ns = about.stx_btime.tv_nsec;
  }
  found.file.is_local = is_local(found.file.cached);
  found.file.direct = Descriptor(open_beneath(folder, within, access | O_DIRECT));
  // Another file may have come to this path between the two opens.
  struct statx other {};
  if (!look_at(found.file.direct, other) || !is_same(about, other))
    found.file.direct = Descriptor();
  return Cause::kNone;
}

void Exports::look_up(const Incarnation& peer, const std::string& path, Rights wanted, bool makes,
                      std::function<void(Cause, Found&)> then) {
  auto asked = std::make_shared<LookUp>();
  const Folder* folder = folder_of(path, asked->within);
  const bool may = folder != nullptr && wanted != kNoRights && (folder->rights & wanted) == wanted;
  if (folder == nullptr) return then(Cause::kNoFile, asked->found);
  if (!may) return then(Cause::kNotAllowed, asked->found);
  asked->peer = peer;
  asked->folder = folder->descriptor;
  asked->wanted = wanted;
  asked->makes = makes;
  asked->found.file.folder = folder->number;
  asked->then = std::move(then);
  start(asked);
}

void Exports::start(const std::shared_ptr<LookUp>& asked) {
  asked->before = closings_;
  opener_.start({asked->peer, asked->found.file.folder, false, [asked] { asked->run(); },
                 [this, asked](bool was_run) {
                   if (!was_run) asked->cause = Cause::kTooMuch;
                   looked_up(asked);
                 }});
}

/// If no descriptor was left, closes unused files and tries again, as long as that may help.
void Exports::looked_up(const std::shared_ptr<LookUp>& asked) {
  if (asked->cause == Cause::kTooMuch) {
    make_room();
    if (closings_.ended > asked->before.ended) return start(asked);
    if (closings_.begun > asked->before.begun) return waiting_for_descriptors_.push_back(asked);
  }
  asked->then(asked->cause, asked->found);
  close(std::move(asked->found.file));  // unless somebody has taken it
}

/// The file system of a file may not answer. That counts for its own folder: whoever lacks a
/// descriptor goes on once any file is closed.
void Exports::make_room() {
  for (OpenFile& idle : take_idle(0)) {
    ++closings_.begun;
    close(std::move(idle), [this] { made_room(); });
  }
}

void Exports::made_room() {
  ++closings_.ended;
  for (const auto& asked : std::exchange(waiting_for_descriptors_, {})) start(asked);
}

/// In a thread: a file system may write what it has kept back, and wait for its server.
void Exports::close(OpenFile&& file, std::function<void()> then) {
  if (!file.cached.is_open() && !file.direct.is_open()) return;
  const uint64_t folder = file.folder;
  auto closed = std::make_shared<OpenFile>(std::move(file));
  FileOpener::Work work{{}, folder, true, [closed = std::move(closed)] { *closed = {}; }, nullptr};
  if (then) work.ended = [then = std::move(then)](bool) { then(); };
  opener_.start(std::move(work));
}

// ---- Files ----

void Exports::open(const Incarnation& peer, const std::string& path, Rights wanted, Opened then) {
  if (waiting_[peer] >= kWaitingMax) return then(Cause::kTooMuch, 0, 0);
  ++waiting_[peer];
  look_up(peer, path, wanted, (wanted & kMayWrite) != 0,
          [this, peer, path, wanted, then = std::move(then)](Cause cause, Found& found) {
            leave(peer);
            if (cause != Cause::kNone) return then(cause, 0, 0);
            opened(path, wanted, found, then);
          });
}

void Exports::leave(const Incarnation& peer) {
  if (--waiting_.at(peer) == 0) waiting_.erase(peer);
}

void Exports::opened(const std::string& path, Rights wanted, Found& found, const Opened& then) {
  uint64_t& number = numbers_[{path, wanted}];
  auto known = files_.find(number);
  const bool is_known = known != files_.end() && known->second.identity == found.identity &&
                        (known->second.open != nullptr || found.identity.is_lasting());
  if (!is_known) {
    number = next_++;
    closed_.push_front(number);
    File made{path, wanted, found.identity, found.file.folder, nullptr, closed_.begin()};
    known = files_.emplace(number, std::move(made)).first;
  }
  const uint64_t file = number;
  keep_open(file, known->second, std::move(found.file));
  if (files_.size() > files_max_) forget_oldest();
  then(Cause::kNone, file, found.size_bytes);
}

Cause Exports::find(uint64_t number, Rights right, OpenFilePointer& opened) {
  const auto known = files_.find(number);
  if (known == files_.end()) return Cause::kNoFile;
  File& file = known->second;
  if ((file.rights & right) != right) return Cause::kNotAllowed;
  if (file.open != nullptr) open_.splice(open_.begin(), open_, file.use);
  opened = file.open;
  return Cause::kNone;
}

uint64_t Exports::folder_of(uint64_t number) const {
  const auto known = files_.find(number);
  return known == files_.end() ? 0 : known->second.folder;
}

std::string Exports::name_of(uint64_t number) const {
  const auto folder = std::find_if(folders_.begin(), folders_.end(),
                                   [&](const auto& each) { return each.second.number == number; });
  return folder == folders_.end() ? "" : folder->first;
}

void Exports::reopen(const Incarnation& peer, uint64_t number, Usable then) {
  const auto known = files_.find(number);
  if (known == files_.end()) return then(Cause::kNoFile, nullptr);
  if (waiting_[peer] >= kWaitingMax) return then(Cause::kTooMuch, nullptr);
  ++waiting_[peer];
  std::vector<Usable>& all = reopening_[number];
  all.push_back([this, peer, then = std::move(then)](Cause cause, const OpenFilePointer& opened) {
    leave(peer);
    then(cause, opened);
  });
  if (all.size() > 1) return;  // it is being opened already
  look_up(peer, known->second.path, known->second.rights, false,
          [this, number](Cause cause, Found& found) {
            OpenFilePointer opened;
            const Cause wrong = reopened(number, cause, found, opened);
            const auto who = reopening_.extract(number);
            for (const Usable& each : who.mapped()) each(wrong, opened);
          });
}

Cause Exports::reopened(uint64_t number, Cause cause, Found& found, OpenFilePointer& opened) {
  if (cause != Cause::kNone) return cause;
  const auto known = files_.find(number);
  if (known == files_.end()) return Cause::kNoFile;
  const Identity& identity = known->second.identity;
  const bool is_the_same = found.identity == identity && identity.is_lasting();
  if (!is_the_same && known->second.open == nullptr) return Cause::kNoFile;
  keep_open(number, known->second, is_the_same ? std::move(found.file) : OpenFile());
  opened = known->second.open;
  return Cause::kNone;
}

void Exports::use(const Incarnation& peer, uint64_t number, Rights right, Usable then) {
  OpenFilePointer opened;
  const Cause cause = find(number, right, opened);
  if (cause == Cause::kNone && opened == nullptr) return reopen(peer, number, std::move(then));
  then(cause, opened);
}

/// Keeps the file open, as the one that was used last.
void Exports::keep_open(uint64_t number, File& file, OpenFile&& opened) {
  if (file.open == nullptr) {
    file.open = std::make_shared<OpenFile>(std::move(opened));
    closed_.erase(file.use);
    file.use = open_.insert(open_.begin(), number);
  } else {
    open_.splice(open_.begin(), open_, file.use);
    close(std::move(opened));
  }
  const OpenFilePointer held = file.open;
  for (OpenFile& idle : take_idle(open_max_)) close(std::move(idle));
}

/// Takes unused files, until at most `open_max` are open or the others are in use.
std::vector<OpenFile> Exports::take_idle(size_t open_max) {
  std::vector<OpenFile> taken;
  for (auto each = open_.end(); open_.size() > open_max && each != open_.begin();) {
    --each;
    File& file = files_.at(*each);
    if (file.open.use_count() > 1) continue;
    taken.push_back(std::move(*file.open));
    file.open = nullptr;
    const auto closed = each++;
    closed_.splice(closed_.begin(), open_, closed);
  }
  return taken;
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
