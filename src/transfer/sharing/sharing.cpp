#include "transfer/sharing/sharing.h"

#include <algorithm>
#include <new>

namespace braid::transfer {

std::unique_ptr<Sharing> Sharing::open() {
  auto made = make_shared_pages(sizeof(Board), shared_kind(false));
  if (!made.ok()) return nullptr;
  new (made.value().pages.memory()) Board{};                              // owner: the pages
  return std::unique_ptr<Sharing>(new Sharing(std::move(made).value()));  // owner: the caller
}

Sharing::~Sharing() {
  for (auto& word : board().buffers) word.store(0);
}

void Sharing::add(uint64_t buffer, MutableBytes memory, Rights rights, File file) {
  auto& words = board().buffers;
  const auto free =
      std::find_if(words.begin(), words.end(), [](const auto& word) { return word.load() == 0; });
  if (free == words.end()) return;
  free->store(buffer);
  shared_[buffer] = {{buffer, reinterpret_cast<uint64_t>(memory.data()), memory.size(), rights,
                      static_cast<uint16_t>(free - words.begin())},
                     std::move(file)};
}

void Sharing::remove(uint64_t buffer) {
  const auto found = shared_.find(buffer);
  if (found == shared_.end()) return;
  board().buffers[found->second.memory.slot].store(0);
  shared_.erase(found);
}

Sharing::Shared Sharing::next(uint64_t after) const {
  const auto found = shared_.upper_bound(after);
  if (found == shared_.end()) return {};
  return {found->second.memory, found->second.file.get()};
}

}  // namespace braid::transfer
