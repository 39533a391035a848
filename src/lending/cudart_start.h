// How CUDA's runtime library starts, which every copy of it does by itself: it asks the driver for
// the runtime's interface, then of every GPU what it wants to know, and last for a self-check, by
// which driver and runtime compare what GPUs they know of. From then on it answers from its own
// list.
//
// GPUs that are lent must be on that list, or the check fails
// (cudaErrorSoftwareValidityNotEstablished). So a runtime that starts is told the truth, and the
// program asks the runtime through hooks (cudart.h).
#pragma once

#include <cuda.h>
#include <link.h>

namespace braid::lending {

/// Whether a copy of the runtime is starting on this thread: what the thread asks of GPUs is then
/// the runtime's question, not the program's.
class CudartStart {
 public:
  static bool now() { return is_under_way_; }
  /// Of the interface table, the self-check's, or another.
  static void table_requested(const CUuuid& id);
  /// A runtime before 11.2 has no check: it has come to its end when it makes a context.
  static void context_requested() { is_under_way_ = false; }

 private:
  // Initial-exec, as of ReentryGuard (preload/state.h).
  static thread_local bool is_under_way_ __attribute__((tls_model("initial-exec")));
};

/// The module that holds `address`, when it holds a copy of the runtime too which cannot be
/// hooked: linked statically into a program or library, its functions have no names there. Null
/// otherwise.
const link_map* static_cudart_at(const void* address) noexcept;

}  // namespace braid::lending
