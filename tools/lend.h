// `braid run --lend`: which GPUs the program's own GPUs may be helped by, although
// CUDA_VISIBLE_DEVICES does not show them to the program. See lending/visible_devices.h.
#pragma once

#include <string>

#include "base/status.h"

namespace braid::tools {

/// The text of BRAID_LEND for `choice` ("all", or a list of numbers and UUIDs as
/// CUDA_VISIBLE_DEVICES takes them) on an emulated server (`profile`) or, if that is empty, this
/// machine. Opens the driver in this process with every GPU visible.
Result<std::string> lendable_gpus(const std::string& choice, const std::string& profile);

}  // namespace braid::tools
