#include "host/shared_table.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "host/file.h"

namespace braid {
namespace {

constexpr size_t kHeadBytes = 4096;
constexpr off_t kCommonLock = SharedTable::kRows;  // the lock behind those of the rows

static_assert(std::atomic<uint64_t>::is_always_lock_free);

struct flock lock_of(off_t at, short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = at;
  lock.l_len = 1;
  return lock;
}

// The open tables, which forked children leave. Children share the locks of a table that finds no
// place here.
constinit std::array<std::atomic<SharedTable*>, 8> open_tables{};

void replace_open_table(SharedTable* before, SharedTable* after) {
  for (auto& place : open_tables)
    if (SharedTable* expected = before; place.compare_exchange_strong(expected, after)) return;
}

// The locks belong to the open file, not to the process: the kernel releases them when the last
// descriptor is closed, and they hold in every container that sees the file.
bool lock_at(int file, off_t at) {
  struct flock lock = lock_of(at, F_WRLCK);
  return fcntl(file, F_OFD_SETLK, &lock) == 0;
}

// What numbers of processes go by. 0: there is no /proc.
uint64_t own_namespace() {
  struct stat facts {};
  return stat("/proc/self/ns/pid", &facts) == 0 ? facts.st_ino : 0;
}

Status refusal(const std::string& name, const std::string& why, const std::string& remedy = {}) {
  return Status::error(
      "processes of this host do not know of each other: /dev/shm" + name + " " + why,
      remedy + "BRAID_PROCESSES=none if that is meant");
}

Status no_room(const std::string& name, size_t size_bytes, int error) {
  return refusal(name, "needs " + std::to_string(size_bytes) + " bytes: " + std::strerror(error),
                 "Remove files from /dev/shm, or make it larger (containers: --shm-size); ");
}

}  // namespace

// The pages are allocated now: on a full /dev/shm a later write would be a SIGBUS in the program.
Result<std::unique_ptr<SharedTable>> SharedTable::open(const std::string& name, uint64_t magic,
                                                       size_t row_bytes) {
  const int file = above_standard_streams(
      shm_open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (file < 0) return refusal(name, std::string("cannot be opened: ") + std::strerror(errno));
  const size_t size_bytes = kHeadBytes + kRows * row_bytes;
  struct stat facts {};
  const bool is_ours = fstat(file, &facts) == 0 && facts.st_uid == geteuid() &&
                       S_ISREG(facts.st_mode) && (facts.st_mode & 077) == 0;
  const int error = is_ours ? posix_fallocate(file, 0, static_cast<off_t>(size_bytes)) : 0;
  void* pages = is_ours && error == 0
                    ? mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)
                    : MAP_FAILED;
  if (pages == MAP_FAILED) {
    close(file);
    return is_ours ? no_room(name, size_bytes, error)
                   : refusal(name, "is another user's, or open to others");
  }
  std::unique_ptr<SharedTable> table(
      new SharedTable(file, pages, size_bytes, row_bytes));  // owner: table
  uint64_t found = 0;
  if (!table->head_->magic.compare_exchange_strong(found, magic) && found != magic)
    return refusal(name, "is another version's; remove it when no program uses it");
  return table;
}

SharedTable::SharedTable(int file, void* pages, size_t size_bytes, size_t row_bytes)
    : file_(file),
      head_(static_cast<Head*>(pages)),
      rows_(static_cast<std::byte*>(pages) + kHeadBytes),
      size_bytes_(size_bytes),
      row_bytes_(row_bytes) {
  static_assert(sizeof(Head) <= kHeadBytes);
  static const int watched = pthread_atfork(nullptr, nullptr, leave_all_in_child);
  (void)watched;
  replace_open_table(nullptr, this);
}

// The mapping keeps the file open as well. So memory of the child's own replaces it, since threads
// of the child may still read it.
void SharedTable::leave_all_in_child() noexcept {
  for (auto& place : open_tables) {
    SharedTable* table = place.load();
    if (table == nullptr) continue;
    mmap(table->head_, table->size_bytes_, PROT_READ | PROT_WRITE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    close(std::exchange(table->file_, -1));
    table->own_row_.reset();
  }
}

SharedTable::~SharedTable() {
  replace_open_table(this, nullptr);
  if (own_row_) head_->namespaces[*own_row_] = head_->pids[*own_row_] = 0;
  munmap(head_, size_bytes_);
  if (file_ >= 0) close(file_);
}

std::optional<size_t> SharedTable::claim(const std::function<void(void* row)>& clear) {
  for (size_t index = 0; index < kRows && !own_row_; ++index) {
    if (!lock_at(file_, static_cast<off_t>(index))) continue;
    own_row_ = index;
    clear(row(index));
    head_->namespaces[index] = own_namespace();
    head_->pids[index] = getpid();
  }
  return own_row_;
}

bool SharedTable::is_of_this_namespace(size_t index) const {
  const uint64_t other = head_->namespaces[index].load(std::memory_order_relaxed);
  const uint64_t own = own_namespace();
  return other == own || other == 0 || own == 0;
}

bool SharedTable::is_alive(size_t index) const {
  if (own_row_ == index) return true;
  struct flock lock = lock_of(static_cast<off_t>(index), F_WRLCK);
  return pid(index) != 0 && fcntl(file_, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

bool SharedTable::try_lock() { return lock_at(file_, kCommonLock); }

void SharedTable::unlock() {
  struct flock lock = lock_of(kCommonLock, F_UNLCK);
  fcntl(file_, F_OFD_SETLK, &lock);
}

}  // namespace braid
