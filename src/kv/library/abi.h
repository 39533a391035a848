// Shared by the files of the C interface (abi_*.cpp).
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "abi/call.h"
#include "braid/kv_abi.h"
#include "kv/rank_worker.h"
#include "kv/rotation_engine.h"

struct braid_kv {
  braid::abi::Process process;
  braid::cuda::Driver driver;
  std::unique_ptr<braid::kv::RotationEngine> rotation;
  // Lists in the engine's types, and the lists that the caller receives.
  std::vector<braid::kv::BlockId> evict;
  std::vector<braid::kv::BlockId> load;
  std::vector<uint64_t> refused;
  std::vector<int> refusals;
};

struct braid_kv_worker {
  braid::abi::Process process;
  braid::cuda::Driver driver;
  std::unique_ptr<braid::kv::RankWorker> worker;
};

namespace braid::kv::abi {

using namespace braid::abi;

/// The code of a failure that the caller's arguments did not cause.
inline braid_status report_failure(const Status& status) {
  return report(status, status.code() == BRAID_ERROR_PEER ? BRAID_ERROR_PEER : BRAID_ERROR_CUDA);
}
/// The same, where the arguments may be the cause.
inline braid_status report_refusal(const Status& status) {
  const bool is_argument = status.code() == BRAID_ERROR_ARGUMENT && status.cuda_result() == 0;
  return is_argument ? report(status) : report_failure(status);
}

}  // namespace braid::kv::abi
