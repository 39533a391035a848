// Modules and functions. Any image loads; of its functions, those exist that have a host twin:
// braid's, or what the image itself brings (cuda::TwinImage).
#include <cstring>
#include <string>

#include "emulator/api/context.h"
#include "emulator/model/host_pages.h"

namespace braid::emulator {
namespace {

// Reads no further than it agrees: other images may be shorter.
bool is_twin_image(const void* image) {
  if (!is_readable(image, sizeof(cuda::TwinImage))) return false;
  const uint64_t magic = cuda::TwinImage::kMagic;
  const auto* expected = reinterpret_cast<const unsigned char*>(&magic);
  const auto* found = static_cast<const unsigned char*>(image);
  for (size_t at = 0; at < sizeof magic; ++at)
    if (found[at] != expected[at]) return false;
  return true;
}

std::span<const cuda::Twin> twins_of(const void* image) {
  if (!is_twin_image(image)) return cuda::twins();
  cuda::TwinImage own;
  std::memcpy(&own, image, sizeof own);
  return {own.twins, own.count};
}

CUresult load(Call& call, CUmodule* out, const void* image) {
  if (out == nullptr || image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  BRAID_LET(before, current_context(call));
  wait_for_context(call, before);
  BRAID_LET(context, current_context(call));  // it may have been destroyed meanwhile
  auto module = std::make_shared<Module>();
  module->context = context;
  module->twins = twins_of(image);
  *out = call.world.modules.add(module);
  return CUDA_SUCCESS;
}

CUresult load_with_options(Call& call, CUmodule* out, const void* image, unsigned, CUjit_option*,
                           void**) {
  return load(call, out, image);
}

CUresult unload(Call& call, CUmodule handle) {
  BRAID_LET(module, find_object(call.world.modules, handle));
  if (const ContextPtr context = module->context.lock()) wait_for_context(call, context);
  call.world.functions.remove_if(
      [&](const Function& function) { return function.module.lock() == module; });
  call.world.modules.remove(handle);
  return CUDA_SUCCESS;
}

CUresult get_function(Call& call, CUfunction* out, CUmodule handle, const char* name) {
  if (out == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  BRAID_LET(module, find_object(call.world.modules, handle));
  for (const auto& [known, function] : call.world.functions.all())
    if (function->module.lock() == module && std::strcmp(function->twin->name, name) == 0) {
      *out = reinterpret_cast<CUfunction>(known);
      return CUDA_SUCCESS;
    }
  for (const cuda::Twin& twin : module->twins) {
    if (std::strcmp(twin.name, name) != 0) continue;
    auto function = std::make_shared<Function>();
    function->module = module;
    function->module_handle = handle;
    function->context = module->context;
    function->twin = &twin;
    *out = call.world.functions.add(function);
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}

CUresult get_global(Call& call, CUdeviceptr*, size_t*, CUmodule handle, const char* name) {
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  BRAID_TRY(find_object(call.world.modules, handle).status());
  return CUDA_ERROR_NOT_FOUND;
}

CUresult get_module(Call& call, CUmodule* out, CUfunction handle) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  BRAID_LET(function, find_object(call.world.functions, handle));
  *out = function->module_handle;
  return CUDA_SUCCESS;
}

CUresult get_name(Call& call, const char** out, CUfunction handle) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  BRAID_LET(function, find_object(call.world.functions, handle));
  *out = function->twin->name;
  return CUDA_SUCCESS;
}

// What a small copy kernel compiled for sm_90 has.
int default_attribute(CUfunction_attribute attribute) {
  switch (static_cast<int>(attribute)) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: return 1024;
    case CU_FUNC_ATTRIBUTE_NUM_REGS: return 32;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION: return 90;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT: return -1;
    default: return 0;
  }
}

CUresult get_attribute(Call& call, int* value, CUfunction_attribute attribute, CUfunction handle) {
  if (value == nullptr || attribute < 0 || attribute >= CU_FUNC_ATTRIBUTE_MAX)
    return CUDA_ERROR_INVALID_VALUE;
  BRAID_LET(function, find_object(call.world.functions, handle));
  const auto set = function->attributes.find(attribute);
  *value = set != function->attributes.end() ? set->second : default_attribute(attribute);
  return CUDA_SUCCESS;
}

CUresult set_attribute(Call& call, CUfunction handle, CUfunction_attribute attribute, int value) {
  if (attribute < CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES ||
      attribute >= CU_FUNC_ATTRIBUTE_MAX)
    return CUDA_ERROR_INVALID_VALUE;
  BRAID_LET(function, find_object(call.world.functions, handle));
  function->attributes[attribute] = value;
  return CUDA_SUCCESS;
}

}  // namespace

BRAID_ENTRY(cuModuleLoadData, 2, load)
BRAID_ENTRY(cuModuleLoadFatBinary, 2, load)
BRAID_ENTRY(cuModuleLoadDataEx, 5, load_with_options)
BRAID_ENTRY(cuModuleUnload, 1, unload)
BRAID_ENTRY(cuModuleGetFunction, 3, get_function)
BRAID_ENTRY(cuModuleGetGlobal_v2, 4, get_global)
BRAID_ENTRY(cuFuncGetModule, 2, get_module)
BRAID_ENTRY(cuFuncGetName, 2, get_name)
BRAID_ENTRY(cuFuncGetAttribute, 3, get_attribute)
BRAID_ENTRY(cuFuncSetAttribute, 3, set_attribute)

}  // namespace braid::emulator
