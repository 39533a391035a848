#include "serving/hardware.h"

#include <array>
#include <charconv>

namespace braid::serving {
namespace {

const std::vector<Gpu>& gpus() {
  static const std::vector<Gpu> all = {
      {"H200", 141e9, "NVIDIA's datasheet: 141 GB of HBM3e"},
      {"GH200", 144e9, "SuperInfer section 5.1: 144 GB of HBM; time as on an H200"},
  };
  return all;
}

const std::vector<Link>& links() {
  static const std::vector<Link> all = {
      {"pcie4", 24.7, 24.7, 42.8, false, true, 20,
       "assumed: half of what one PCIe 5.0 link was measured to carry, less 10 %"},
      {"pcie5", 54.9, 54.9, 95.2, false, true, 20,
       "rotation of 4 MiB blocks by one link, docs/measurements/2026-11-28-2xH200-copies.jsonl"},
      {"braid2", 98.4, 95.4, 121.5, false, true, 30,
       "rotation of 4 MiB blocks by 2 links, docs/measurements/2026-11-28-2xH200-copies.jsonl"},
      {"braid4", 158.7, 130.3, 157.1, false, true, 30,
       "copies of 1 GiB over 4 links, docs/measurements/2026-11-22-4xH200.md; both ways of 512 "
       "MiB, "
       "2026-11-21-4xH200-awake.md: no rotation was measured on 4 H200"},
      {"c2c", 269.7, 239.0, 360.4, false, true, 20, "SuperInfer table 1: MS+MK, DuplexKV"},
      {"c2c-serial", 269.7, 239.0, 269.7, true, true, 20, "SuperInfer table 1: MS+MK"},
      {"c2c-naive", 9.86, 10.75, 10.75, true, false, 20, "SuperInfer table 1: naive"},
  };
  return all;
}

template <typename Named>
std::string names_of(const std::vector<Named>& all) {
  std::string names;
  for (const Named& one : all) names += (names.empty() ? "" : ", ") + one.name;
  return names;
}

// What a given link may carry. A copy over a slower one would end beyond virtual time.
constexpr double kLeastGbps = 0.001, kMostGbps = 1e6;

// "LOAD,SAVE,BOTH"
bool parse_rates(std::string_view text, std::array<double, 3>& rates) {
  for (double& rate : rates) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rate);
    if (error != std::errc() || !(rate >= kLeastGbps && rate <= kMostGbps)) return false;
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    const bool is_last = &rate == &rates.back();
    if (is_last ? !text.empty() : !text.starts_with(',')) return false;
    if (!is_last) text.remove_prefix(1);
  }
  return true;
}

}  // namespace

std::string gpu_names() { return names_of(gpus()); }
std::string link_names() { return names_of(links()); }

Result<Gpu> find_gpu(std::string_view name) {
  for (const Gpu& gpu : gpus())
    if (gpu.name == name) return gpu;
  return Status::error("there is no GPU '" + std::string(name) + "'",
                       "Choose one of " + gpu_names());
}

Result<Link> find_link(std::string_view text) {
  for (const Link& link : links())
    if (link.name == text) return link;
  std::array<double, 3> rates{};
  if (parse_rates(text, rates))
    return Link{std::string(text), rates[0], rates[1], rates[2], false, true, 20, "given"};
  return Status::error(
      "there is no link '" + std::string(text) + "'",
      "Choose one of " + link_names() +
          ", or give LOAD,SAVE,BOTH in GB/s, as 55,55,100: each from 0.001 to 1000000");
}

HostMemory pcie_host() {
  return {
      219.4, 162.8, 207.6,
      "profiles/h200x4.json: 4 GPUs of one server at once, native copies, each on its own link"};
}

}  // namespace braid::serving
