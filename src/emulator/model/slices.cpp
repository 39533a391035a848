#include "emulator/model/slices.h"

#include <algorithm>

namespace braid::emulator {

int Slices::lowest_free() const {
  for (int slice = 0;; ++slice)
    if (std::none_of(sharing_.begin(), sharing_.end(),
                     [&](const auto& entry) { return entry.second.slice == slice; }))
      return slice;
}

int Slices::begin(uint64_t context) {
  auto found = sharing_.find(context);
  if (found == sharing_.end()) found = sharing_.emplace(context, Share{lowest_free(), 0}).first;
  ++found->second.kernels;
  return found->second.slice;
}

void Slices::end(uint64_t context) {
  const auto found = sharing_.find(context);
  if (--found->second.kernels == 0) sharing_.erase(found);
}

}  // namespace braid::emulator
