// Memory of a GPU that processes of one server share: what its owner hands out. Only memory that
// was made to be shared is: mappings of which a file descriptor can be had (cuMemCreate with
// CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR), and cuMemAlloc's, of which the driver shares the whole
// allocation (legacy IPC).
#pragma once

#include <memory>
#include <mutex>
#include <optional>

#include "cuda/driver.h"
#include "fabric/gpu/lane.h"
#include "fabric/local/mapping.h"
#include "fabric/local/socket.h"

namespace braid::fabric::local {

struct Exported {
  Offer offer;
  File file;  ///< Offer::kMapping
};

/// By what the driver says of a pointer, which needs no lock of the driver's. An error says what
/// kind of memory can be shared.
Status check_exportable(const cuda::Driver& driver, MutableBytes memory);

/// Of one region. The lane's thread asks the driver for handles, once a peer asks for the memory:
/// the driver may make that thread wait, and then this region is offered late, and nothing else is.
class Export : public std::enable_shared_from_this<Export> {
 public:
  Export(const cuda::Driver& driver, MutableBytes memory) : driver_(driver), memory_(memory) {}

  /// Begins it, the first time. True: it has ended.
  bool has_ended(gpu::Lane& lane);
  /// Once it has ended. Null: the driver has refused.
  const Exported* result() const;

 private:
  void ask(CUresult context);

  const cuda::Driver& driver_;
  const MutableBytes memory_;
  bool has_begun_ = false;
  mutable std::mutex mutex_;
  bool has_ended_ = false;            // under it, below too
  std::optional<Exported> exported_;  // does not change once it has ended
};

}  // namespace braid::fabric::local
