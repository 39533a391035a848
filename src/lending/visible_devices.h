// `braid run --lend`: engines are often given one GPU each (CUDA_VISIBLE_DEVICES=3), and braid then
// has no relay. Lending shows the driver more GPUs than the program: first the program's own, so
// that their numbers stay, then the lent ones, which are hidden from the program.
//
// This is the arithmetic of CUDA_VISIBLE_DEVICES; lent_gpus.h applies it when the program starts
// CUDA. Pure.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace braid::lending {

/// The variable by which `braid run` tells the library what may be lent.
inline constexpr const char* kLendVariable = "BRAID_LEND";
/// The variable by which CUDA and launchers choose the program's own GPUs.
inline constexpr const char* kVisibleVariable = "CUDA_VISIBLE_DEVICES";

/// A GPU by both its names in CUDA_VISIBLE_DEVICES.
struct LendableGpu {
  int ordinal = 0;   ///< among all GPUs of the server, as CUDA orders them
  std::string uuid;  ///< "GPU-..."
  bool operator==(const LendableGpu&) const = default;
};

/// Text of BRAID_LEND, "0:GPU-...,3:GPU-...", and back.
std::string format_lendable(std::span<const LendableGpu> gpus);
Result<std::vector<LendableGpu>> parse_lendable(std::string_view text);

/// The entries between the commas, without blanks around them.
std::vector<std::string_view> split_list(std::string_view text);

/// The first MIG instance among the entries of CUDA_VISIBLE_DEVICES; empty: none.
std::string_view find_mig(std::string_view visible);

struct WidenedDevices {
  std::string visible;  ///< CUDA_VISIBLE_DEVICES for the driver
  int own_count = 0;    ///< how many of its entries are the program's
};

/// `visible`: the program's CUDA_VISIBLE_DEVICES. Nothing if no GPU is left to lend, or if this
/// function does not understand an entry: the program then starts as it would without lending.
std::optional<WidenedDevices> widen(std::string_view visible, std::span<const LendableGpu> gpus);

}  // namespace braid::lending
