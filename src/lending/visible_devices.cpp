#include "lending/visible_devices.h"

#include <algorithm>
#include <charconv>

#include "base/gpu_uuid.h"

namespace braid::lending {
namespace {

std::optional<int> parse_ordinal(std::string_view text) {
  int ordinal = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, ordinal);
  if (error != std::errc() || rest != end || ordinal < 0) return std::nullopt;
  return ordinal;
}

bool is_uuid(std::string_view entry) { return entry.starts_with("GPU-"); }

bool names(std::string_view entry, const LendableGpu& gpu) {
  return is_uuid(entry) ? names_gpu(entry, gpu.uuid) : parse_ordinal(entry) == gpu.ordinal;
}

}  // namespace

std::string format_lendable(std::span<const LendableGpu> gpus) {
  std::string text;
  for (const LendableGpu& gpu : gpus)
    text += (text.empty() ? "" : ",") + std::to_string(gpu.ordinal) + ":" + gpu.uuid;
  return text;
}

Result<std::vector<LendableGpu>> parse_lendable(std::string_view text) {
  std::vector<LendableGpu> gpus;
  for (const std::string_view entry : split_list(text)) {
    const size_t colon = std::min(entry.find(':'), entry.size());
    const auto ordinal = parse_ordinal(entry.substr(0, colon));
    const std::string_view uuid = colon < entry.size() ? entry.substr(colon + 1) : "";
    if (!ordinal || !is_uuid(uuid))
      return Status::error(
          std::string(kLendVariable) + ": '" + std::string(entry) + "' is not a number and a UUID",
          "Leave the variable to braid run --lend");
    gpus.push_back({*ordinal, std::string(uuid)});
  }
  return gpus;
}

std::vector<std::string_view> split_list(std::string_view text) {
  std::vector<std::string_view> entries;
  if (text.empty()) return entries;
  while (true) {
    const size_t comma = text.find(',');
    std::string_view entry = text.substr(0, comma);
    while (entry.starts_with(' ')) entry.remove_prefix(1);
    while (entry.ends_with(' ')) entry.remove_suffix(1);
    entries.push_back(entry);
    if (comma == text.npos) return entries;
    text.remove_prefix(comma + 1);
  }
}

std::string_view find_mig(std::string_view visible) {
  for (const std::string_view entry : split_list(visible))
    if (entry.starts_with("MIG-")) return entry;
  return {};
}

std::optional<WidenedDevices> widen(std::string_view visible, std::span<const LendableGpu> gpus) {
  const auto own = split_list(visible);
  if (own.empty()) return std::nullopt;
  // One list does not mix the two ways of naming a GPU.
  const bool by_uuid = is_uuid(own.front());
  for (const std::string_view entry : own)
    if (by_uuid ? !is_uuid(entry) : !parse_ordinal(entry)) return std::nullopt;
  WidenedDevices widened{std::string(visible), static_cast<int>(own.size())};
  bool is_wider = false;
  for (const LendableGpu& gpu : gpus) {
    const bool is_own = std::any_of(own.begin(), own.end(),
                                    [&](std::string_view entry) { return names(entry, gpu); });
    if (is_own) continue;
    widened.visible += "," + (by_uuid ? gpu.uuid : std::to_string(gpu.ordinal));
    is_wider = true;
  }
  return is_wider ? std::optional(widened) : std::nullopt;
}

}  // namespace braid::lending
