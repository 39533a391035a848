// The table of symbols, and an entry point for each that nobody else defines. cuda.h must not be
// included here: the table declares every function without its parameters.
#include "emulator/symbols/symbols.h"

#include <atomic>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace braid::emulator {

void say(std::string_view line);

namespace {

constexpr int kNotSupported = 801;  // CUDA_ERROR_NOT_SUPPORTED

int refuse(const char* name, std::atomic<bool>& said) {
  if (!said.exchange(true))
    say(std::string(name) + " is not emulated; it returns CUDA_ERROR_NOT_SUPPORTED");
  return kNotSupported;
}

}  // namespace
}  // namespace braid::emulator

// Weak, so that a definition in api/ takes its place when the library is linked.
#define BRAID_SYMBOL(name)                         \
  extern "C" __attribute__((weak)) int name() {    \
    static std::atomic<bool> said{false};          \
    return ::braid::emulator::refuse(#name, said); \
  }
#include "cuda_symbols.inc"
#undef BRAID_SYMBOL

namespace braid::emulator {
namespace {

using Function = int (*)();

// Plain arrays: a map of so many elements, written out, takes a compiler half a minute.
constexpr std::pair<const char*, Function> kSymbols[] = {
#define BRAID_SYMBOL(name) {#name, &name},
#include "cuda_symbols.inc"
#undef BRAID_SYMBOL
};
constexpr std::pair<const char*, int> kVersions[] = {
#define BRAID_VERSION(name, version) {#name, version},
#include "cuda_versions.inc"
#undef BRAID_VERSION
};

const std::map<std::string, Function>& symbols() {
  using Symbols = std::map<std::string, Function>;
  static const auto* table = new Symbols(std::begin(kSymbols), std::end(kSymbols));
  return *table;
}

using Versions = std::map<std::string, std::vector<int>>;

Versions make_versions() {
  Versions all;
  for (const auto& [name, version] : kVersions) all[name].push_back(version);
  return all;
}

// The CUDA versions in which each name got its first, second, ... form, in that order.
const Versions& versions() {
  static const auto* table = new Versions(make_versions());
  return *table;
}

Function find(const std::string& name) {
  const auto found = symbols().find(name);
  return found == symbols().end() ? nullptr : found->second;
}

// The symbol of a name's form number `form` (from 1).
std::string symbol_of_form(const std::string& name, size_t form) {
  return form <= 1 ? name : name + "_v" + std::to_string(form);
}

// The form that CUDA `version` had; 0 when it did not have the name yet.
size_t form_at(const std::string& name, int version) {
  const auto known = versions().find(name);
  if (known == versions().end()) return 1;
  size_t form = 0;
  while (form < known->second.size() && known->second[form] <= version) ++form;
  return form;
}

}  // namespace

SymbolQuery find_symbol(const std::string& name, int version, bool per_thread) {
  size_t form = form_at(name, version);
  if (form == 0) return {nullptr, true};
  // Names that cudaTypedefs.h does not list in all their forms: the form before exists.
  while (form > 1 && find(symbol_of_form(name, form)) == nullptr) --form;
  const std::string symbol = symbol_of_form(name, form);
  Function function = nullptr;
  if (per_thread)
    for (const char* suffix : {"_ptsz", "_ptds"})
      if (function == nullptr) function = find(symbol + suffix);
  if (function == nullptr) function = find(symbol);
  return {reinterpret_cast<void*>(function), false};
}

}  // namespace braid::emulator
