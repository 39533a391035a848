// What a caller's braid_kv_options say, in the types of the rotation engine.
#pragma once

#include <memory>
#include <vector>

#include "braid/kv_abi.h"
#include "kv/gpu_rank.h"

namespace braid::kv::abi {

struct Given {
  Layout layout;
  BlockTable::Slots slots;
  std::vector<RankOptions> ranks;
  std::unique_ptr<Copier> copier;  ///< null without ranks
};

/// Opens `driver` if this process has ranks; it outlives the copier. What fails names the field.
Result<Given> read(const braid_kv_options& options, cuda::Driver& driver);

}  // namespace braid::kv::abi
