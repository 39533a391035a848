// fi_getinfo's answers: what both providers do with hints.
#pragma once

#include <rdma/fabric.h>

#include <memory>
#include <string>

namespace braid::fabric::fake {

struct FreeInfo {
  void operator()(fi_info* info) const { fi_freeinfo(info); }
};
using Info = std::unique_ptr<fi_info, FreeInfo>;

/// Whether a provider that can do this may answer these hints.
bool fits(const fi_info& offer, const fi_info* hints);
/// Queues are as long as the hints say, up to those of the offer.
void take_sizes(fi_info& offer, const fi_info* hints);
void* copy_of(const void* bytes, size_t size_bytes);

}  // namespace braid::fabric::fake
