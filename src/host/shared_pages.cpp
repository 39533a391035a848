#include "host/shared_pages.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <string>

#include "base/try.h"
#include "host/memory_left.h"

// These exist in kernels newer than some headers.
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace braid {
namespace {

Status system_error(const std::string& what) {
  return Status::error(what + ": " + std::strerror(errno));
}

File new_file(const char* name) {
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  const int file = memfd_create(name, kFlags | MFD_NOEXEC_SEAL);
  return File(
      above_standard_streams(file >= 0 || errno != EINVAL ? file : memfd_create(name, kFlags)));
}

/// Beyond the limit, the kernel would end the process by SIGXFSZ.
bool is_beyond_file_limit(size_t size_bytes) {
  rlimit limit{};
  return getrlimit(RLIMIT_FSIZE, &limit) == 0 && size_bytes > limit.rlim_cur;
}

}  // namespace

Result<MappedPages> MappedPages::map(int file, uint64_t offset_bytes, size_t size_bytes,
                                     int protection, int flags) {
  void* memory = size_bytes == 0 ? MAP_FAILED
                                 : mmap(nullptr, size_bytes, protection, flags, file,
                                        static_cast<off_t>(offset_bytes));
  if (memory == MAP_FAILED)
    return Status::error("there is no memory of " + std::to_string(size_bytes) + " bytes");
  return MappedPages(memory, size_bytes);
}

Result<MappedPages> MappedPages::map_private(size_t size_bytes, bool is_reserved) {
  return map(-1, 0, size_bytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | (is_reserved ? 0 : MAP_NORESERVE));
}

Result<MappedPages> MappedPages::map_shared(int file, uint64_t offset_bytes, size_t size_bytes,
                                            bool is_writable) {
  const int protection = is_writable ? PROT_READ | PROT_WRITE : PROT_READ;
  BRAID_LET(pages, map(file, offset_bytes, size_bytes, protection, MAP_SHARED));
  // A child process with shared pages would write into its parent's pages.
  if (madvise(pages.memory(), size_bytes, MADV_DONTFORK) != 0)
    return system_error("cannot keep memory from child processes");
  return std::move(pages);
}

MappedPages::~MappedPages() {
  if (memory_ != nullptr) munmap(memory_, size_bytes_);
}

void MappedPages::prefer_node(int node) const {
  constexpr size_t kNodesMax = 1024, kBits = CHAR_BIT * sizeof(unsigned long);
  if (node < 0 || static_cast<size_t>(node) >= kNodesMax) return;
  std::array<unsigned long, kNodesMax / kBits> nodes{};
  nodes[static_cast<size_t>(node) / kBits] = 1UL << (static_cast<size_t>(node) % kBits);
  // The kernel takes one less than the number that it is given for the number of bits.
  (void)syscall(SYS_mbind, memory_, size_bytes_, MPOL_PREFERRED, nodes.data(), kNodesMax + 1, 0);
}

Result<SharedPages> make_shared_pages(size_t size_bytes, const SharedPagesKind& kind) {
  if (is_beyond_file_limit(size_bytes))
    return Status::error("files may not be as large (ulimit -f)");
  if (kind.is_filled) BRAID_TRY(check_memory_left(size_bytes));
  SharedPages made;
  made.file = new_file(kind.name);
  if (!made.file.is_open() || ftruncate(made.file.get(), static_cast<off_t>(size_bytes)) != 0)
    return system_error("there is no file for memory");
  BRAID_LET(pages, MappedPages::map_shared(made.file.get(), 0, size_bytes, true));
  if (kind.is_filled) {
    (void)madvise(pages.memory(), size_bytes, MADV_HUGEPAGE);
    pages.prefer_node(kind.node);
    // Unlike touching the pages, this fails if there is no memory.
    if (madvise(pages.memory(), size_bytes, MADV_POPULATE_WRITE) != 0)
      return system_error("there is no memory to share");
  }
  const int seals =
      F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL | (kind.may_peers_write ? 0 : F_SEAL_FUTURE_WRITE);
  if (fcntl(made.file.get(), F_ADD_SEALS, seals) != 0) return system_error("cannot seal memory");
  made.pages = std::move(pages);
  return made;
}

Result<MappedPages> map_shared_pages(const File& file, uint64_t offset_bytes, uint64_t size_bytes,
                                     bool is_writable) {
  struct stat about {};
  struct statfs system {};
  const int seals = fcntl(file.get(), F_GET_SEALS);
  if (seals < 0 || fstat(file.get(), &about) != 0 || fstatfs(file.get(), &system) != 0)
    return Status::error("what came is no memory");
  // Large pages of hugetlbfs may be missing although their file has the size.
  if ((seals & F_SEAL_SHRINK) == 0 || system.f_type != TMPFS_MAGIC)
    return Status::error("its owner could take the memory away");
  const auto all_bytes = static_cast<uint64_t>(about.st_size);
  if (offset_bytes > all_bytes || size_bytes > all_bytes - offset_bytes)
    return Status::error("the memory is smaller than its owner says");
  BRAID_LET(pages, MappedPages::map_shared(file.get(), offset_bytes, size_bytes, is_writable));
  (void)madvise(pages.memory(), size_bytes, MADV_DONTDUMP);  // its owner's
  return std::move(pages);
}

}  // namespace braid
