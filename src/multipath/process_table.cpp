#include "multipath/process_table.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "base/try.h"

namespace braid::multipath {
namespace {

constexpr uint64_t kMagic = 0x3130646961726220;  // " braid01": of this layout
constexpr std::chrono::milliseconds kStep{5};

long futex(std::atomic<uint32_t>& word, int operation, uint32_t value, const timespec* limit) {
  return syscall(SYS_futex, &word, operation, value, limit, nullptr, 0);
}

}  // namespace

std::string ProcessTable::usual_name() { return "/braid-" + std::to_string(geteuid()); }

Result<std::unique_ptr<ProcessTable>> ProcessTable::open(const std::string& name) {
  BRAID_LET(table, SharedTable::open(name, kMagic, sizeof(ProcessRow)));
  return std::unique_ptr<ProcessTable>(new ProcessTable(std::move(table)));  // owner: the caller
}

ProcessRow* ProcessTable::claim(std::string_view program) {
  const auto clear = [&](void* memory) {
    ProcessRow& row = *static_cast<ProcessRow*>(memory);
    row.is_off = row.answers = 0;
    row.answered.store(row.asked);
    for (GpuRow& gpu : row.gpus) {
      gpu.key = 0;
      for (LinkRow& link : gpu.links) link.until_ns = link.size_bytes = 0;
    }
    const size_t length = std::min(program.size(), sizeof row.name - 1);
    std::memcpy(row.name, program.data(), length);
    row.name[length] = '\0';
  };
  const std::optional<size_t> index = table_->claim(clear);
  return index ? &row(*index) : nullptr;
}

bool ProcessTable::lock_opening(std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!table_->try_lock()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(kStep);
  }
  return true;
}

void ProcessTable::unlock_opening() { table_->unlock(); }

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
