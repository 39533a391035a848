// What the files of the C interface (abi_*.cpp) share: arguments in, status out, and no exception
// leaves.
#pragma once

#include <exception>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "braid/kv_abi.h"
#include "kv/braid_copier.h"
#include "kv/rotation_engine.h"

struct braid_kv {
  braid::cuda::Driver driver;
  const braid::kv::BraidCopier* braid = nullptr;  // null: the driver copies
  std::unique_ptr<braid::kv::RotationEngine> rotation;
  // Lists as the engine takes them, and those that the caller is given.
  std::vector<braid::kv::BlockId> evict;
  std::vector<braid::kv::BlockId> load;
  std::vector<uint64_t> refused;
  std::vector<int> refusals;
};

namespace braid::kv::abi {

/// What braid_kv_last_error says in this thread.
braid_status report(braid_status code, std::string message, int cuda_result = 0);

/// A failure of the driver's if it is one, else under `code`.
inline braid_status report(const Status& status, braid_status code = BRAID_ERROR_ARGUMENT) {
  if (status.ok()) return BRAID_OK;
  return report(status.cuda_result() != 0 ? BRAID_ERROR_CUDA : code, status.message(),
                status.cuda_result());
}

/// A struct of the caller's, which begins with its own size.
template <typename Struct>
braid_status check_struct(const Struct* given, const char* name) {
  if (given == nullptr) return report(BRAID_ERROR_ARGUMENT, std::string(name) + " is null");
  if (given->struct_bytes < sizeof(Struct))
    return report(BRAID_ERROR_ARGUMENT, std::string(name) + ": struct_bytes is " +
                                            std::to_string(given->struct_bytes) +
                                            ". Set it to sizeof(" + name + ")");
  return BRAID_OK;
}

template <typename Body>
braid_status guarded(const Body& body) noexcept try {
  return body();
} catch (const std::bad_alloc&) {
  return report(BRAID_ERROR_MEMORY, "out of memory");
} catch (const std::exception& unexpected) {
  return report(BRAID_ERROR_UNAVAILABLE, unexpected.what());
}

/// `body(kv)`, unless there is none.
template <typename Body>
braid_status guarded(braid_kv* kv, const Body& body) noexcept {
  return guarded([&] {
    return kv == nullptr ? report(BRAID_ERROR_ARGUMENT, "the engine is null") : body(*kv);
  });
}

}  // namespace braid::kv::abi
