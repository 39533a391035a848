#include "lending/cudart_start.h"

#include <cstring>

#include "base/export_tables.h"
#include "loader/module.h"

namespace braid::lending {
namespace {

bool is(const CUuuid& id, const TableId& known) {
  return std::memcmp(id.bytes, known.data(), known.size()) == 0;
}

// True: the runtime's functions are found by name, so hooks can interpose them (cudart.h).
bool exports_cudart(const link_map& module) {
  void* const found = loader::find_in(module, "cudaGetDeviceCount");
  return found != nullptr && loader::module_of(found) == &module;
}

}  // namespace

thread_local bool CudartStart::is_under_way_ = false;

void CudartStart::table_requested(const CUuuid& id) {
  if (is(id, kInterfaceTable)) is_under_way_ = true;
  if (is(id, kSelfCheckTable)) is_under_way_ = false;
}

const link_map* static_cudart_at(const void* address) noexcept {
  const link_map* const module = loader::module_of(address);
  if (module == nullptr || exports_cudart(*module)) return nullptr;
  // Only the runtime asks for its interface, so only a module that holds it knows the table's name.
  return loader::has_constant(*module, kInterfaceTable) ? module : nullptr;
}

}  // namespace braid::lending
