// How CUDA's runtime library starts; every copy of it starts separately. It asks the driver for the
// runtime's interface, then for the attributes of every GPU, and last for a self-check, in which
// driver and runtime compare the GPUs that they know. From then on it answers from its own list.
//
// GPUs that are lent must be on that list, or the check fails
// (cudaErrorSoftwareValidityNotEstablished). So a starting runtime sees all GPUs, and the program
// asks the runtime through hooks (cudart.h).
#pragma once

#include <cuda.h>
#include <link.h>

namespace braid::lending {

/// Whether a copy of the runtime is starting on this thread. Calls about GPUs on this thread then
/// come from the runtime, not from the program.
class CudartStart {
 public:
  static bool now() { return is_under_way_; }
  /// `id`: that of the interface table, of the self-check's, or of another.
  static void table_requested(const CUuuid& id);
  /// A runtime before 11.2 has no self-check: its start is over when it makes a context.
  static void context_requested() { is_under_way_ = false; }

 private:
  // Initial-exec, as of ReentryGuard (preload/state.h).
  static thread_local bool is_under_way_ __attribute__((tls_model("initial-exec")));
};

/// The module that holds `address`, if it also holds a copy of the runtime that cannot be hooked: a
/// statically linked one, whose functions have no names there. Null otherwise.
const link_map* static_cudart_at(const void* address) noexcept;

}  // namespace braid::lending
