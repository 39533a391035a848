// A double of CUDA's runtime library for the emulated driver, on which the real one does not run.
// It starts as the real one does (src/lending/cudart_start.h): each copy of it asks the driver,
// once, of every GPU, has the driver's self-check confirm that it was told of all, and answers from
// its own list ever after. Built as libcudart.so.98 and .99, and linked statically into programs.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <cstring>
#include <mutex>
#include <vector>

#include "base/export_tables.h"

namespace {

using braid::EmulatedSelfCheck;

struct Driver {
  CUresult (*cuInit)(unsigned);
  CUresult (*cuGetExportTable)(const void**, const CUuuid*);
  CUresult (*cuDeviceGetCount)(int*);
  CUresult (*cuDeviceGet)(CUdevice*, int);
  CUresult (*cuDeviceGetUuid)(CUuuid*, CUdevice);
  CUresult (*cuDeviceGetPCIBusId)(char*, int, CUdevice);
  CUresult (*cuDeviceGetAttribute)(int*, CUdevice_attribute, CUdevice);
  CUresult (*cuDevicePrimaryCtxRetain)(CUcontext*, CUdevice);
  CUresult (*cuCtxSetCurrent)(CUcontext);
  CUresult (*cuMemAlloc)(CUdeviceptr*, size_t);
  CUresult (*cuMemHostAlloc)(void**, size_t, unsigned);
  CUresult (*cuMemcpyHtoD)(CUdeviceptr, const void*, size_t);
  CUresult (*cuMemcpyDtoH)(void*, CUdeviceptr, size_t);
};

struct KnownGpu {
  CUdevice device = 0;
  CUuuid uuid{};
  char address[32] = "";
  int warp_size = 0;
};

struct Runtime {
  Driver driver{};
  std::vector<KnownGpu> gpus;
  cudaError_t start_error = cudaSuccess;
  std::once_flag started;
};

Runtime runtime;
thread_local cudaError_t last_error = cudaSuccess;
thread_local int current_gpu = 0;

cudaError_t said(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

// The numbers of the errors that are used here are the same.
cudaError_t said(CUresult result) { return said(static_cast<cudaError_t>(result)); }

bool find_driver(Driver& driver) {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  using Resolver = CUresult(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);
  auto* resolve = library != nullptr
                      ? reinterpret_cast<Resolver*>(dlsym(library, "cuGetProcAddress_v2"))
                      : nullptr;
  if (resolve == nullptr) return false;
  const auto find = [&](const char* name, auto& function) {
    void* found = nullptr;
    const bool is_found = resolve(name, &found, 12000, 0, nullptr) == CUDA_SUCCESS;
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(found);
    return is_found;
  };
#define FIND(name) find(#name, driver.name)
  return FIND(cuInit) && FIND(cuGetExportTable) && FIND(cuDeviceGetCount) && FIND(cuDeviceGet) &&
         FIND(cuDeviceGetUuid) && FIND(cuDeviceGetPCIBusId) && FIND(cuDeviceGetAttribute) &&
         FIND(cuDevicePrimaryCtxRetain) && FIND(cuCtxSetCurrent) && FIND(cuMemAlloc) &&
         FIND(cuMemHostAlloc) && FIND(cuMemcpyHtoD) && FIND(cuMemcpyDtoH);
#undef FIND
}

const void* find_table(const braid::TableId& id) {
  CUuuid uuid{};
  std::memcpy(uuid.bytes, id.data(), id.size());
  const void* table = nullptr;
  runtime.driver.cuGetExportTable(&table, &uuid);
  return table;
}

CUresult list_gpus() {
  const Driver& driver = runtime.driver;
  int count = 0;
  CUresult result = driver.cuDeviceGetCount(&count);
  for (int number = 0; number < count && result == CUDA_SUCCESS; ++number) {
    KnownGpu gpu;
    result = driver.cuDeviceGet(&gpu.device, number);
    if (result == CUDA_SUCCESS) result = driver.cuDeviceGetUuid(&gpu.uuid, gpu.device);
    if (result == CUDA_SUCCESS)
      result = driver.cuDeviceGetPCIBusId(gpu.address, sizeof gpu.address, gpu.device);
    if (result == CUDA_SUCCESS)
      result =
          driver.cuDeviceGetAttribute(&gpu.warp_size, CU_DEVICE_ATTRIBUTE_WARP_SIZE, gpu.device);
    runtime.gpus.push_back(gpu);
  }
  return result;
}

bool agrees_with(const EmulatedSelfCheck& driver) {
  if (driver.gpu_count() != static_cast<int>(runtime.gpus.size())) return false;
  for (int number = 0; number < driver.gpu_count(); ++number) {
    CUuuid uuid{};
    driver.gpu_uuid(number, uuid.bytes);
    const CUuuid& told = runtime.gpus[static_cast<size_t>(number)].uuid;
    if (std::memcmp(uuid.bytes, told.bytes, sizeof uuid.bytes) != 0) return false;
  }
  return true;
}

cudaError_t start_once() {
  if (!find_driver(runtime.driver)) return cudaErrorInsufficientDriver;
  CUresult result = runtime.driver.cuInit(0);
  if (result != CUDA_SUCCESS) return static_cast<cudaError_t>(result);
  if (find_table(braid::kInterfaceTable) == nullptr) return cudaErrorNotSupported;
  result = list_gpus();
  if (result != CUDA_SUCCESS) return static_cast<cudaError_t>(result);
  if (CUDART_DOUBLE_VERSION == 90) return cudaSuccess;
  const auto* check = static_cast<const EmulatedSelfCheck*>(find_table(braid::kSelfCheckTable));
  return check != nullptr && agrees_with(*check) ? cudaSuccess
                                                 : cudaErrorSoftwareValidityNotEstablished;
}

cudaError_t start() {
  std::call_once(runtime.started, [] { runtime.start_error = start_once(); });
  return said(runtime.start_error);
}

cudaError_t check_gpu(int gpu) {
  if (const cudaError_t error = start()) return error;
  const bool is_known = gpu >= 0 && gpu < static_cast<int>(runtime.gpus.size());
  return said(is_known ? cudaSuccess : cudaErrorInvalidDevice);
}

const KnownGpu& known(int gpu) { return runtime.gpus[static_cast<size_t>(gpu)]; }

cudaError_t use_gpu(int gpu) {
  if (const cudaError_t error = check_gpu(gpu)) return error;
  CUcontext context = nullptr;
  CUresult result = runtime.driver.cuDevicePrimaryCtxRetain(&context, known(gpu).device);
  if (result == CUDA_SUCCESS) result = runtime.driver.cuCtxSetCurrent(context);
  if (result == CUDA_SUCCESS) current_gpu = gpu;
  return said(result);
}

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  if (const cudaError_t error = start()) return error;
  *count = static_cast<int>(runtime.gpus.size());
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int gpu) { return use_gpu(gpu); }

cudaError_t cudaSetValidDevices(int* gpus, int count) {
  for (int index = 0; index < count; ++index)
    if (const cudaError_t error = check_gpu(gpus[index])) return error;
  return start();
}

// The last is the best: of lent GPUs, if there are any.
cudaError_t cudaChooseDevice(int* gpu, const cudaDeviceProp*) {
  if (const cudaError_t error = start()) return error;
  *gpu = static_cast<int>(runtime.gpus.size()) - 1;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int gpu) {
  if (const cudaError_t error = check_gpu(gpu)) return error;
  *value = known(gpu).warp_size;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* address, int size, int gpu) {
  if (const cudaError_t error = check_gpu(gpu)) return error;
  std::strncpy(address, known(gpu).address, static_cast<size_t>(size));
  return cudaSuccess;
}

cudaError_t cudaDeviceGetByPCIBusId(int* gpu, const char* address) {
  if (const cudaError_t error = start()) return error;
  for (size_t index = 0; index < runtime.gpus.size(); ++index)
    if (std::strcmp(runtime.gpus[index].address, address) == 0) {
      *gpu = static_cast<int>(index);
      return cudaSuccess;
    }
  return said(cudaErrorInvalidDevice);
}

cudaError_t cudaDeviceCanAccessPeer(int* possible, int gpu, int peer) {
  if (const cudaError_t error = check_gpu(gpu)) return error;
  if (const cudaError_t error = check_gpu(peer)) return error;
  *possible = gpu != peer;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_DOUBLE_VERSION;
  return cudaSuccess;
}

cudaError_t cudaMallocHost(void** memory, size_t size_bytes) {
  if (const cudaError_t error = use_gpu(current_gpu)) return error;
  return said(runtime.driver.cuMemHostAlloc(memory, size_bytes, 0));
}

cudaError_t cudaMalloc(void** memory, size_t size_bytes) {
  if (const cudaError_t error = use_gpu(current_gpu)) return error;
  CUdeviceptr address = 0;
  const CUresult result = runtime.driver.cuMemAlloc(&address, size_bytes);
  *memory = reinterpret_cast<void*>(address);
  return said(result);
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t size_bytes, cudaMemcpyKind kind) {
  if (const cudaError_t error = use_gpu(current_gpu)) return error;
  if (kind == cudaMemcpyHostToDevice)
    return said(runtime.driver.cuMemcpyHtoD(reinterpret_cast<CUdeviceptr>(to), from, size_bytes));
  return said(runtime.driver.cuMemcpyDtoH(to, reinterpret_cast<CUdeviceptr>(from), size_bytes));
}

}  // extern "C"
