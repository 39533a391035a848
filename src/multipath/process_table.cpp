#include "multipath/process_table.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

namespace braid::multipath {
namespace {

constexpr uint64_t kMagic = 0x3130646961726220;      // " braid01": of this layout
constexpr off_t kOpeningLock = ProcessTable::kRows;  // the lock behind those of the rows
constexpr std::chrono::milliseconds kStep{5};

static_assert(std::atomic<uint64_t>::is_always_lock_free);

struct flock lock_of(off_t at, short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = at;
  lock.l_len = 1;
  return lock;
}

// Locks of the open file, not of the process: the kernel lets go of them when the last descriptor
// is closed, and they mean the same in every container that sees the file.
bool try_lock(int file, off_t at) {
  struct flock lock = lock_of(at, F_WRLCK);
  return fcntl(file, F_OFD_SETLK, &lock) == 0;
}

void let_go(int file, off_t at) {
  struct flock lock = lock_of(at, F_UNLCK);
  fcntl(file, F_OFD_SETLK, &lock);
}

long futex(std::atomic<uint32_t>& word, int operation, uint32_t value, const timespec* limit) {
  return syscall(SYS_futex, &word, operation, value, limit, nullptr, 0);
}

Status refusal(const std::string& name, const std::string& why) {
  return Status::error(
      "processes of this host do not know of each other: /dev/shm" + name + " " + why,
      "BRAID_PROCESSES=none if that is meant");
}

}  // namespace

struct ProcessTable::Layout {
  std::atomic<uint64_t> magic;
  std::array<std::atomic<int32_t>, kRows> pids;  // together: copies look at all of them
  char unused[4096 - sizeof(uint64_t) - kRows * sizeof(int32_t)];
  ProcessRow rows[kRows];
};

std::string ProcessTable::usual_name() { return "/braid-" + std::to_string(geteuid()); }

// The pages are allocated now: on a full /dev/shm a later write would be a SIGBUS in the program.
Result<std::unique_ptr<ProcessTable>> ProcessTable::open(const std::string& name) {
  const int file = shm_open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) return refusal(name, std::string("cannot be opened: ") + std::strerror(errno));
  struct stat facts {};
  const bool is_ours = fstat(file, &facts) == 0 && facts.st_uid == geteuid() &&
                       S_ISREG(facts.st_mode) && (facts.st_mode & 077) == 0;
  const int error = is_ours ? posix_fallocate(file, 0, sizeof(Layout)) : 0;
  void* pages = is_ours && error == 0
                    ? mmap(nullptr, sizeof(Layout), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)
                    : MAP_FAILED;
  if (pages == MAP_FAILED) {
    close(file);
    return refusal(name, is_ours ? std::string("has no room: ") + std::strerror(error)
                                 : "is another user's, or open to others");
  }
  auto* layout = static_cast<Layout*>(pages);
  uint64_t found = 0;
  if (!layout->magic.compare_exchange_strong(found, kMagic) && found != kMagic) {
    munmap(pages, sizeof(Layout));
    close(file);
    return refusal(name, "is another version's; remove it when no program uses it");
  }
  return std::unique_ptr<ProcessTable>(new ProcessTable(file, layout));
}

ProcessTable::~ProcessTable() {
  if (own_row_) layout_->pids[*own_row_] = 0;
  munmap(layout_, sizeof(Layout));
  close(file_);
}

ProcessRow* ProcessTable::claim(std::string_view program) {
  for (size_t index = 0; index < kRows && !own_row_; ++index) {
    if (!try_lock(file_, static_cast<off_t>(index))) continue;
    own_row_ = index;
    ProcessRow& row = layout_->rows[index];
    row.is_off = row.answers = 0;
    row.answered.store(row.asked);
    for (GpuRow& gpu : row.gpus) {
      gpu.key = 0;
      for (LinkRow& link : gpu.links) link.until_ns = link.size_bytes = 0;
    }
    const size_t length = std::min(program.size(), sizeof row.name - 1);
    std::memcpy(row.name, program.data(), length);
    row.name[length] = '\0';
    layout_->pids[index] = getpid();
  }
  return own_row_ ? &layout_->rows[*own_row_] : nullptr;
}

ProcessRow& ProcessTable::row(size_t index) { return layout_->rows[index]; }

int32_t ProcessTable::pid(size_t index) const {
  return layout_->pids[index].load(std::memory_order_relaxed);
}

bool ProcessTable::is_alive(size_t index) const {
  if (own_row_ == index) return true;
  struct flock lock = lock_of(static_cast<off_t>(index), F_WRLCK);
  return pid(index) != 0 && fcntl(file_, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

bool ProcessTable::lock_opening(std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!try_lock(file_, kOpeningLock)) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(kStep);
  }
  return true;
}

void ProcessTable::unlock_opening() { let_go(file_, kOpeningLock); }

// ---- Questions

void wake(ProcessRow& row) {
  ++row.asked;
  futex(row.asked, FUTEX_WAKE, INT32_MAX, nullptr);
}

void wait_for_question(ProcessRow& row, uint32_t seen, std::chrono::milliseconds limit) {
  const timespec time{static_cast<time_t>(limit.count() / 1000),
                      static_cast<long>(limit.count() % 1000) * 1'000'000};
  futex(row.asked, FUTEX_WAIT, seen, limit == limit.max() ? nullptr : &time);
}

void answer(ProcessRow& row, uint32_t asked, std::string_view text) {
  const size_t length = std::min(text.size(), sizeof row.answer - 1);
  std::memcpy(row.answer, text.data(), length);
  row.answer[length] = '\0';
  row.answered.store(asked, std::memory_order_release);
}

std::optional<std::string> ask(ProcessRow& row, std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  wake(row);
  const uint32_t asked = row.asked;
  while (static_cast<int32_t>(row.answered.load(std::memory_order_acquire) - asked) < 0) {
    if (std::chrono::steady_clock::now() >= deadline) return std::nullopt;
    std::this_thread::sleep_for(kStep);
  }
  return std::string(row.answer, strnlen(row.answer, sizeof row.answer));
}

std::string_view program_name(char (&buffer)[16]) noexcept {
  if (*program_invocation_short_name != '\0') return program_invocation_short_name;
  const int file = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
  const ssize_t size = read(file, buffer, sizeof buffer);
  close(file);
  return {buffer, size > 0 ? static_cast<size_t>(size) - 1 : 0};  // without the end of the line
}

}  // namespace braid::multipath
