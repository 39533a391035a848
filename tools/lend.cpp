#include "tools/lend.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <optional>
#include <vector>

#include "base/gpu_uuid.h"
#include "base/try.h"
#include "cuda/driver.h"
#include "lending/visible_devices.h"
#include "tools/open_server.h"

namespace braid::tools {
namespace {

using lending::LendableGpu;

// `visible`: CUDA_VISIBLE_DEVICES, which CUDA reads when it starts; null: all GPUs.
Result<cuda::Driver> open_with(const char* visible, const std::string& profile) {
  const char* const own = std::getenv(lending::kVisibleVariable);
  const std::string kept = own != nullptr ? own : "";
  if (visible != nullptr)
    setenv(lending::kVisibleVariable, visible, 1);
  else
    unsetenv(lending::kVisibleVariable);
  auto opened = open_server(profile);
  if (own != nullptr) setenv(lending::kVisibleVariable, kept.c_str(), 1);
  return opened;
}

Result<std::vector<LendableGpu>> list_gpus(const std::string& profile) {
  BRAID_LET(driver, open_with(nullptr, profile));
  int count = 0;
  BRAID_TRY(driver.check(driver.cuDeviceGetCount(&count), "counting the GPUs"));
  std::vector<LendableGpu> gpus;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    CUuuid uuid{};
    CUdevice device = 0;
    const std::string what = fmt::format("asking GPU {} for its UUID", ordinal);
    BRAID_TRY(driver.check(driver.cuDeviceGet(&device, ordinal), what));
    BRAID_TRY(driver.check(driver.cuDeviceGetUuid(&uuid, device), what));
    gpus.push_back({ordinal, format_gpu_uuid(uuid.bytes)});
  }
  return gpus;
}

Result<LendableGpu> find_gpu(const std::vector<LendableGpu>& gpus, const std::string& entry) {
  const auto found = std::find_if(gpus.begin(), gpus.end(), [&](const LendableGpu& gpu) {
    return entry == std::to_string(gpu.ordinal) || names_gpu(entry, gpu.uuid);
  });
  if (found != gpus.end()) return *found;
  return Status::error(
      fmt::format("--lend: '{}' is none of the {} GPUs", entry, gpus.size()),
      fmt::format("Write all, or numbers from 0 to {} and UUIDs: 1,2,5", gpus.size() - 1));
}

}  // namespace

Result<std::string> lendable_gpus(const std::string& choice, const std::string& profile) {
  const char* const visible = std::getenv(lending::kVisibleVariable);
  const std::string mig(lending::find_mig(visible != nullptr ? visible : ""));
  if (!mig.empty())
    return Status::error(
        fmt::format("{} names the MIG instance '{}'", lending::kVisibleVariable, mig),
        "MIG instances reach no other GPU: run without --lend");
  BRAID_LET(gpus, list_gpus(profile));
  if (choice == "all") return lending::format_lendable(gpus);
  std::vector<LendableGpu> chosen;
  for (const std::string_view entry : lending::split_list(choice)) {
    BRAID_LET(gpu, find_gpu(gpus, std::string(entry)));
    if (std::find(chosen.begin(), chosen.end(), gpu) == chosen.end()) chosen.push_back(gpu);
  }
  return lending::format_lendable(chosen);
}

Result<LentServer> open_lent_server(const std::string& lendable, const std::string& profile) {
  const char* const visible = std::getenv(lending::kVisibleVariable);
  const auto gpus = lending::parse_lendable(lendable);
  const auto widened =
      visible != nullptr && gpus.ok() ? lending::widen(visible, gpus.value()) : std::nullopt;
  if (!widened) {
    BRAID_LET(driver, open_server(profile));
    return LentServer{driver, std::numeric_limits<int>::max()};
  }
  BRAID_LET(driver, open_with(widened->visible.c_str(), profile));
  return LentServer{driver, widened->own_count};
}

}  // namespace braid::tools
