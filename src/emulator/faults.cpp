#include "emulator/faults.h"

#include <nlohmann/json.hpp>
#include <string_view>

#include "emulator/errors.h"

namespace braid::emulator {
namespace {

using Json = nlohmann::json;

int find_link(const topology::Server& server, const std::string& one, const std::string& other) {
  for (size_t i = 0; i < server.links.size(); ++i) {
    const std::string& from = server.vertices[server.links[i].from].id;
    const std::string& to = server.vertices[server.links[i].to].id;
    if ((from == one && to == other) || (from == other && to == one)) return static_cast<int>(i);
  }
  return -1;
}

Status add_link(const Json& fault, const topology::Server& server, Machine& machine) {
  const auto ends = fault.at("ends").get<std::vector<std::string>>();
  const int link = ends.size() == 2 ? find_link(server, ends[0], ends[1]) : -1;
  if (link < 0)
    return Status::error("\"ends\" " + fault.at("ends").dump() + " is not a link of the server");
  const double factor = fault.at("factor");
  if (!(factor > 0)) return Status::error("\"factor\" must be above 0");
  Simulation& simulation = machine.simulation();
  simulation.at(from_us(fault.at("from_us")),
                [&machine, link, factor] { machine.scale_link(link, factor); });
  if (fault.contains("to_us"))
    simulation.at(from_us(fault.at("to_us")),
                  [&machine, link, factor] { machine.scale_link(link, 1 / factor); });
  return {};
}

Status add_busy(const Json& fault, const topology::Server& server, Machine& machine) {
  const int gpu = fault.at("gpu");
  if (gpu < 0 || gpu >= static_cast<int>(server.gpus.size()))
    return Status::error("\"gpu\" " + std::to_string(gpu) + " is not a GPU of the server");
  machine.make_busy(gpu, from_us(fault.at("from_us")), from_us(fault.at("to_us")));
  return {};
}

}  // namespace

Status Faults::add(const std::string& json, const std::string& origin,
                   const topology::Server& server, Machine& machine) {
  if (json.empty()) return {};
  const auto wrong = [&](const std::string& what) {
    return Status::error(origin + ": " + what, "docs/emulator.md shows the form of faults");
  };
  try {
    const Json document = Json::parse(json);
    for (const Json& fault : document.value("calls", Json::array())) {
      const std::string error = fault.at("error");
      const CUresult code = error_by_name(error);
      if (code == CUDA_SUCCESS) return wrong("\"" + error + "\" is not the name of a CUDA error");
      calls_[fault.at("name")].faults.push_back({fault.at("nth").get<int>(), code});
    }
    for (const Json& fault : document.value("links", Json::array()))
      if (Status status = add_link(fault, server, machine); !status.ok())
        return wrong(status.message());
    for (const Json& fault : document.value("busy", Json::array()))
      if (Status status = add_busy(fault, server, machine); !status.ok())
        return wrong(status.message());
    contexts_take_ =
        std::chrono::milliseconds(document.value("contexts_take_ms", contexts_take_.count()));
    kernels_take_local_bytes_ =
        document.value("kernels_take_local_bytes", kernels_take_local_bytes_);
    contexts_fail_alone_ = document.value("contexts_fail_alone", contexts_fail_alone_);
  } catch (const Json::exception& exception) {
    return wrong(exception.what());
  }
  return {};
}

CUresult Faults::count_call(const char* name) {
  if (calls_.empty()) return CUDA_SUCCESS;
  const auto found = calls_.find(std::string_view(name));
  if (found == calls_.end()) return CUDA_SUCCESS;
  Calls& calls = found->second;
  ++calls.made;
  for (const CallFault& fault : calls.faults)
    if (fault.nth == calls.made) return fault.error;
  return CUDA_SUCCESS;
}

}  // namespace braid::emulator
