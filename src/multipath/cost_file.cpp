#include "multipath/cost_file.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/try.h"
#include "topology/json_reader.h"

namespace braid::multipath {
namespace {

namespace fs = std::filesystem;
using topology::Json;
using topology::JsonErrors;
using topology::JsonNode;

constexpr const char* kRemedy = "Write it anew: braid tune";
constexpr const char* kDirectionNames[] = {"host_to_device", "device_to_host"};

// FNV-1a: the same on every machine and with every compiler.
uint32_t hash_of(const std::string& text) {
  uint32_t hash = 2166136261u;
  for (const char letter : text) hash = (hash ^ static_cast<unsigned char>(letter)) * 16777619u;
  return hash;
}

std::string in_hex(uint32_t number) {
  std::string text(8, '0');
  for (size_t digit = 8; digit-- > 0; number >>= 4) text[digit] = "0123456789abcdef"[number & 15];
  return text;
}

// "NVIDIA H200" to "nvidia-h200".
std::string as_file_name(const std::string& name) {
  std::string text;
  for (const char letter : name)
    if (std::isalnum(static_cast<unsigned char>(letter)) != 0)
      text += static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
    else if (!text.empty() && text.back() != '-')
      text += '-';
  while (!text.empty() && text.back() == '-') text.pop_back();
  return text;
}

double read_cost(const JsonNode& node, bool is_rate) {
  const double value = is_rate ? node.number_above_zero() : node.number_from_zero();
  if (value > kMostCost || (is_rate && value < kLeastRate)) node.refuse("is no server's cost");
  return value;
}

DirectionCosts read_direction(const JsonNode& node) {
  std::vector<const char*> names;
  for (const CostRow& row : cost_rows()) names.push_back(row.name);
  node.expect_keys(names);
  DirectionCosts costs;
  for (const CostRow& row : cost_rows()) costs.*row.value = read_cost(node[row.name], row.is_rate);
  return costs;
}

}  // namespace

Result<std::string> server_key(const cuda::Driver& driver) {
  int version = 0;
  int count = 0;
  BRAID_TRY(driver.check(driver.cuDriverGetVersion(&version), "asking for its version"));
  BRAID_TRY(driver.check(driver.cuDeviceGetCount(&count), "counting the GPUs"));
  std::string all = std::to_string(version);
  std::string first;
  for (int gpu = 0; gpu < count; ++gpu) {
    CUdevice device = 0;
    char name[128] = "";
    char bus_id[32] = "";
    size_t memory_bytes = 0;
    CUresult result = driver.cuDeviceGet(&device, gpu);
    if (result == CUDA_SUCCESS) result = driver.cuDeviceGetName(name, sizeof name, device);
    if (result == CUDA_SUCCESS) result = driver.cuDeviceGetPCIBusId(bus_id, sizeof bus_id, device);
    if (result == CUDA_SUCCESS) result = driver.cuDeviceTotalMem(&memory_bytes, device);
    BRAID_TRY(driver.check(result, "asking what GPU " + std::to_string(gpu) + " is"));
    all += std::string("/") + name + "/" + bus_id + "/" + std::to_string(memory_bytes);
    if (gpu == 0) first = name;
  }
  return std::to_string(count) + "x-" + as_file_name(first) + "-" + in_hex(hash_of(all));
}

Result<CostFile> read_cost_file(const std::string& path) {
  const auto text = topology::read_text(path);
  if (!text.ok()) return Status::error(text.status().message(), kRemedy);
  const auto document = topology::parse_json(text.value(), path);
  if (!document.ok()) return Status::error(document.status().message(), kRemedy);
  JsonErrors errors(path);
  const JsonNode root(&document.value(), "", &errors);
  root.expect_keys({"server", "measured_at_s", kDirectionNames[0], kDirectionNames[1]});
  CostFile file;
  file.server = root["server"].text();
  constexpr double kLatest = 1e12;  // so that the cast is defined, whatever the file says
  file.measured_at_s =
      static_cast<int64_t>(std::min(root["measured_at_s"].number_from_zero(), kLatest));
  for (const Direction direction : {Direction::kHostToDevice, Direction::kDeviceToHost})
    file.costs.of(direction) =
        read_direction(root[kDirectionNames[static_cast<size_t>(direction)]]);
  if (!errors.ok()) return Status::error(errors.first().message(), kRemedy);
  return file;
}

Status write_cost_file(const std::string& path, const CostFile& file) {
  Json document = {{"server", file.server}, {"measured_at_s", file.measured_at_s}};
  for (const Direction direction : {Direction::kHostToDevice, Direction::kDeviceToHost})
    for (const CostRow& row : cost_rows())
      document[kDirectionNames[static_cast<size_t>(direction)]][row.name] =
          file.costs.of(direction).*row.value;
  // A link stays one: what it leads to is replaced.
  std::error_code ignored;
  const fs::path target = fs::canonical(path, ignored);
  const std::string place = ignored ? path : target.string();
  const std::string draft = place + "." + std::to_string(getpid());
  errno = 0;
  std::ofstream stream(draft, std::ios::binary);
  stream << document.dump(2) << '\n';
  stream.close();
  if (stream && std::rename(draft.c_str(), place.c_str()) == 0) return {};
  const std::string reason = std::strerror(errno);
  fs::remove(draft, ignored);
  return Status::error("cannot write '" + path + "': " + reason,
                       "Name a file in a folder where you may write: --out FILE");
}

std::string cost_file_path(const Options& options, const std::string& server) {
  if (options.costs == "none") return {};
  if (!options.costs.empty()) return options.costs;
  return options.cache_folder.empty() ? "" : options.cache_folder + "/braid/" + server + ".json";
}

LoadedCosts load_costs(const cuda::Driver& driver, const Options& options) {
  LoadedCosts loaded;
  const auto server = server_key(driver);
  if (!server.ok()) {
    loaded.problem = server.status();
    return loaded;
  }
  const std::string path = cost_file_path(options, server.value());
  std::error_code error;
  if (path.empty() || (options.costs.empty() && !fs::exists(path, error))) return loaded;
  const auto file = read_cost_file(path);
  if (!file.ok())
    loaded.problem = file.status();
  else if (file.value().server != server.value())
    loaded.problem = Status::error(
        path + ": server: measured on " + file.value().server + ", and this is " + server.value(),
        kRemedy);
  if (!loaded.problem.ok()) return loaded;
  loaded.costs = file.value().costs;
  loaded.path = path;
  loaded.measured_at_s = file.value().measured_at_s;
  return loaded;
}

}  // namespace braid::multipath
