// Shared by the files of the C interface (abi_*.cpp).
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "abi/call.h"
#include "braid/kv_abi.h"
#include "kv/rotation_engine.h"

struct braid_kv {
  braid::abi::Process process;
  braid::cuda::Driver driver;
  const braid::kv::Copier* copier = nullptr;  // the rotation's
  std::unique_ptr<braid::kv::RotationEngine> rotation;
  // Lists in the engine's types, and the lists that the caller receives.
  std::vector<braid::kv::BlockId> evict;
  std::vector<braid::kv::BlockId> load;
  std::vector<uint64_t> refused;
  std::vector<int> refusals;
};

namespace braid::kv::abi {

using namespace braid::abi;

}  // namespace braid::kv::abi
