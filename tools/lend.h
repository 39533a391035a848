// `braid run --lend`: which GPUs the program's own GPUs may be helped by, although
// CUDA_VISIBLE_DEVICES does not show them to the program. See lending/visible_devices.h.
#pragma once

#include <string>

#include "base/status.h"
#include "cuda/driver.h"

namespace braid::tools {

/// The text of BRAID_LEND for `choice` ("all", or a list of numbers and UUIDs as
/// CUDA_VISIBLE_DEVICES takes them) on an emulated server (`profile`) or, if that is empty, this
/// machine. Opens the driver in this process with every GPU visible.
Result<std::string> lendable_gpus(const std::string& choice, const std::string& profile);

/// The driver that a program finds under braid.
struct LentServer {
  cuda::Driver driver;
  int own_gpus = 0;  ///< how many of its GPUs are the program's; INT_MAX: all
};

/// As open_server, with the GPUs of `lendable` (the text of BRAID_LEND) behind those that
/// CUDA_VISIBLE_DEVICES names.
Result<LentServer> open_lent_server(const std::string& lendable, const std::string& profile);

}  // namespace braid::tools
