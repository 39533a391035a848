#include "fabric/local/shared_memory.h"

#include <pthread.h>

#include <iterator>
#include <map>
#include <mutex>
#include <utility>

#include "base/try.h"

namespace braid::fabric::local {
namespace {

struct Entry {
  size_t size_bytes = 0;
  std::shared_ptr<File> file;
};

/// A child process has none of the memory (MappedPages::map_shared), and its own memory may come to
/// lie at the same addresses. So its registry is empty, and it keeps no file open.
class Allocations {
 public:
  Allocations() {
    pthread_atfork([] { all().mutex.lock(); }, [] { all().mutex.unlock(); },
                   [] {
                     all().forget_in_child();
                     all().mutex.unlock();
                   });
  }
  /// Never destroyed: engines may end after it otherwise would.
  static Allocations& all() {
    static auto* const one = new Allocations();  // owner: the process
    return *one;
  }

  std::mutex mutex;
  std::map<const std::byte*, Entry> by_address;

 private:
  /// The engines that the child inherits, and never uses, share the files.
  void forget_in_child() noexcept {
    for (auto& [address, entry] : by_address) File(std::move(*entry.file));
    by_address.clear();
  }
};

}  // namespace

SharedMemory::SharedMemory(SharedPages pages) : pages_(std::move(pages.pages)) {
  Allocations& all = Allocations::all();
  const std::lock_guard lock(all.mutex);
  all.by_address[bytes().data()] = {bytes().size(), std::make_shared<File>(std::move(pages.file))};
}

SharedMemory::~SharedMemory() {
  Allocations& all = Allocations::all();
  const std::lock_guard lock(all.mutex);
  all.by_address.erase(bytes().data());
}

Result<std::unique_ptr<SharedMemory>> SharedMemory::allocate(size_t size_bytes, int node) {
  BRAID_LET(made, make_shared_pages(size_bytes, {.name = "braid-fabric", .node = node}));
  return std::unique_ptr<SharedMemory>(new SharedMemory(std::move(made)));  // owner: the caller
}

Result<std::unique_ptr<SharedMemory>> SharedMemory::open(File file, size_t size_bytes) {
  BRAID_LET(pages, map_shared_pages(file, 0, size_bytes, true));
  return std::unique_ptr<SharedMemory>(
      new SharedMemory({std::move(pages), std::move(file)}));  // owner: the caller
}

std::optional<FileRange> find_shared(MutableBytes memory) {
  Allocations& all = Allocations::all();
  const std::lock_guard lock(all.mutex);
  const auto next = all.by_address.upper_bound(memory.data());
  if (next == all.by_address.begin()) return std::nullopt;
  const auto& [first, entry] = *std::prev(next);
  const auto offset_bytes = static_cast<uint64_t>(memory.data() - first);
  if (offset_bytes > entry.size_bytes || memory.size() > entry.size_bytes - offset_bytes)
    return std::nullopt;
  return FileRange{entry.file, offset_bytes};
}

}  // namespace braid::fabric::local
