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

/// The code says whether the caller's mistake was the cause, the driver, or another process.
inline braid_status report_failure(const Status& status) {
  const bool is_drivers = status.code() != BRAID_ERROR_PEER &&
                          (status.code() != BRAID_ERROR_ARGUMENT || status.cuda_result() != 0);
  return report(status, is_drivers ? BRAID_ERROR_CUDA : status.code());
}

}  // namespace braid::kv::abi
