#include "emulator/faults.h"

#include <cmath>
#include <string_view>
#include <utility>

#include "emulator/errors.h"

namespace braid::emulator {

Faults::Faults(topology::Faults wanted, Machine& machine) : wanted_(std::move(wanted)) {
  Simulation& simulation = machine.simulation();
  for (const auto& call : wanted_.calls) calls_[call.symbol] = 0;
  for (const auto& [link, factor, from, to] : wanted_.links) {
    const auto scale = [&machine, link = link](double by) {
      return [&machine, link, by] { machine.scale_link(link, by); };
    };
    simulation.at(from_us(from), scale(factor));
    if (std::isfinite(to)) simulation.at(from_us(to), scale(1 / factor));
  }
  for (const auto& [gpu, from, to] : wanted_.busy)
    machine.make_busy(gpu, from_us(from), from_us(to));
}

CUresult Faults::count_call(const char* name) {
  const auto found = calls_.find(std::string_view(name));
  if (found == calls_.end()) return CUDA_SUCCESS;
  ++found->second;
  for (const auto& call : wanted_.calls)
    if (call.symbol == name && call.nth == found->second) return error_by_name(call.error);
  return CUDA_SUCCESS;
}

}  // namespace braid::emulator
