// Calls with arguments from nowhere. Whatever comes back, the process must live, and a sane program
// must work afterwards.
#include <sys/mman.h>

#include <cstring>

#include "cuda/kernels/image.h"
#include "cuda/kernels/pull.h"
#include "memory_calls.h"

namespace braid::emulator_test {
namespace {

// One letter an argument: o where a result goes (or null); h a handle of any kind, dead or alive;
// n a number; a the size of an allocation, small or far too big; d a device address; x one that is
// never valid; p a host address; s text; f a host function; q and l lists of one address and of one
// number; c a struct of a copy's parameters. A stream that waits for a value nobody
// writes would hang as on hardware, so those waits get no valid address.
struct Target {
  const char* symbol;
  const char* arguments;
};

constexpr Target kTargets[] = {
    {"cuDeviceGet", "on"},
    {"cuDeviceGetCount", "o"},
    {"cuDeviceGetName", "onn"},
    {"cuDeviceGetUuid_v2", "on"},
    {"cuDeviceTotalMem_v2", "on"},
    {"cuDeviceGetAttribute", "onn"},
    {"cuDeviceGetPCIBusId", "onn"},
    {"cuDeviceGetByPCIBusId", "os"},
    {"cuDeviceComputeCapability", "oon"},
    {"cuDeviceGetProperties", "on"},
    {"cuDeviceCanAccessPeer", "onn"},
    {"cuDeviceGetP2PAttribute", "onnn"},
    {"cuDevicePrimaryCtxRetain", "on"},
    {"cuDevicePrimaryCtxRelease_v2", "n"},
    {"cuDevicePrimaryCtxReset_v2", "n"},
    {"cuDevicePrimaryCtxGetState", "noo"},
    {"cuDevicePrimaryCtxSetFlags_v2", "nn"},
    {"cuCtxCreate_v2", "onn"},
    {"cuCtxCreate_v4", "oznn"},
    {"cuCtxDestroy_v2", "h"},
    {"cuCtxPushCurrent_v2", "h"},
    {"cuCtxPopCurrent_v2", "o"},
    {"cuCtxSetCurrent", "h"},
    {"cuCtxGetCurrent", "o"},
    {"cuCtxGetDevice", "o"},
    {"cuCtxSynchronize", ""},
    {"cuCtxGetApiVersion", "ho"},
    {"cuCtxGetFlags", "o"},
    {"cuCtxGetId", "ho"},
    {"cuCtxGetLimit", "on"},
    {"cuCtxSetLimit", "nn"},
    {"cuCtxGetStreamPriorityRange", "oo"},
    {"cuCtxEnablePeerAccess", "hn"},
    {"cuCtxDisablePeerAccess", "h"},
    {"cuMemAlloc_v2", "oa"},
    {"cuMemAllocPitch_v2", "ooaan"},
    {"cuMemFree_v2", "d"},
    {"cuMemGetInfo_v2", "oo"},
    {"cuMemGetAddressRange_v2", "ood"},
    {"cuMemHostAlloc", "oan"},
    {"cuMemFreeHost", "p"},
    {"cuMemHostRegister_v2", "pnn"},
    {"cuMemHostUnregister", "p"},
    {"cuMemHostGetDevicePointer_v2", "opn"},
    {"cuMemHostGetFlags", "op"},
    {"cuPointerGetAttribute", "ond"},
    {"cuPointerGetAttributes", "1zod"},
    {"cuPointerSetAttribute", "ond"},
    {"cuStreamCreate", "on"},
    {"cuStreamCreateWithPriority", "onn"},
    {"cuStreamDestroy_v2", "h"},
    {"cuStreamQuery", "h"},
    {"cuStreamSynchronize", "h"},
    {"cuStreamWaitEvent", "hhn"},
    {"cuStreamGetCtx", "ho"},
    {"cuStreamGetFlags", "ho"},
    {"cuStreamGetPriority", "ho"},
    {"cuStreamGetId", "ho"},
    {"cuLaunchHostFunc", "hfp"},
    {"cuStreamIsCapturing", "ho"},
    {"cuStreamBeginCapture_v2", "hn"},
    {"cuStreamEndCapture", "ho"},
    {"cuStreamGetCaptureInfo_v2", "hooooo"},
    {"cuThreadExchangeStreamCaptureMode", "o"},
    {"cuGraphDestroy", "h"},
    {"cuGraphGetNodes", "hoo"},
    {"cuGraphInstantiateWithFlags", "ohn"},
    {"cuGraphExecGetFlags", "ho"},
    {"cuGraphUpload", "hh"},
    {"cuGraphLaunch", "hh"},
    {"cuGraphExecDestroy", "h"},
    {"cuEventCreate", "on"},
    {"cuEventDestroy_v2", "h"},
    {"cuEventRecord", "hh"},
    {"cuEventRecordWithFlags", "hhn"},
    {"cuEventQuery", "h"},
    {"cuEventSynchronize", "h"},
    {"cuEventElapsedTime_v2", "ohh"},
    {"cuMemcpy", "ddn"},
    {"cuMemcpyAsync", "ddnh"},
    {"cuMemcpyHtoD_v2", "dpn"},
    {"cuMemcpyHtoDAsync_v2", "dpnh"},
    {"cuMemcpyDtoH_v2", "pdn"},
    {"cuMemcpyDtoHAsync_v2", "pdnh"},
    {"cuMemcpyDtoD_v2", "ddn"},
    {"cuMemcpyDtoDAsync_v2", "ddnh"},
    {"cuMemcpyPeer", "dhdhn"},
    {"cuMemcpyPeerAsync", "dhdhnh"},
    {"cuMemcpyHtoDAsync_v2_ptsz", "dpnh"},
    {"cuMemcpyDtoH_v2_ptds", "pdn"},
    {"cuMemcpy2D_v2", "c"},
    {"cuMemcpy2DAsync_v2", "ch"},
    {"cuMemcpy3D_v2", "c"},
    {"cuMemcpy3DAsync_v2", "ch"},
    {"cuMemcpy3DPeerAsync", "ch"},
    {"cuMemcpyBatchAsync", "qql1cznoh"},
    {"cuMemcpyBatchAsync_v2", "qql1cznh"},
    {"cuMemcpy3DBatchAsync", "1conh"},
    {"cuMemcpy3DBatchAsync_v2", "1cnh"},
    {"cuMemsetD8_v2", "dnn"},
    {"cuMemsetD2D16_v2", "dnnnn"},
    {"cuMemsetD2D32Async", "dnnnnh"},
    {"cuMemsetD32_v2", "dnn"},
    {"cuMemsetD16Async", "dnnh"},
    {"cuMemsetD32Async", "dnnh"},
    {"cuStreamWaitValue32_v2", "hxnn"},
    {"cuStreamWaitValue64_v2", "hxnn"},
    {"cuStreamWriteValue32_v2", "hdnn"},
    {"cuStreamWriteValue64_v2", "hdnn"},
    {"cuModuleLoadData", "op"},
    {"cuModuleUnload", "h"},
    {"cuModuleGetFunction", "ohs"},
    {"cuFuncGetAttribute", "onh"},
    {"cuFuncSetAttribute", "hnn"},
    {"cuLaunchKernel", "hnnnnnnnhzz"},
    {"cuGetErrorName", "no"},
    {"cuGetErrorString", "no"},
    {"cuOccupancyMaxActiveBlocksPerMultiprocessor", "ohnn"},
    {"cuMemAllocManaged", "oan"},
    {"cuMemPrefetchAsync", "dnnh"},
    {"cuMemAdvise", "dnnn"},
    {"cuMemAddressReserve", "oannn"},
    {"cuMemCreate", "oazn"},
    {"cuMemRelease", "h"},
    {"cuMemMap", "dnnhn"},
    {"cuMemUnmap", "dn"},
    {"cuMemSetAccess", "dno1"},
    {"cuMemGetAccess", "ood"},
    {"cuMemGetAllocationGranularity", "ozn"},
    {"cuMemGetAllocationPropertiesFromHandle", "oh"},
    {"cuMemRetainAllocationHandle", "od"},
    {"cuMemExportToShareableHandle", "ohnn"},
    {"cuMemImportFromShareableHandle", "onn"},
    {"cuMemAllocAsync", "oah"},
    {"cuMemAllocFromPoolAsync", "oahh"},
    {"cuMemFreeAsync", "dh"},
    {"cuMemPoolCreate", "oz"},
    {"cuMemPoolDestroy", "h"},
    {"cuMemPoolSetAccess", "ho1"},
    {"cuMemPoolGetAccess", "oho"},
    {"cuMemPoolSetAttribute", "hno"},
    {"cuMemPoolGetAttribute", "hno"},
    {"cuMemPoolTrimTo", "hn"},
    {"cuDeviceGetDefaultMemPool", "on"},
    {"cuDeviceGetMemPool", "on"},
    {"cuDeviceSetMemPool", "nh"},
    {"cuIpcGetMemHandle", "od"},
    {"cuIpcCloseMemHandle", "d"},
    {"cuGetExportTable", "oo"},
    {"cuProfilerStart", ""},
};

class Fuzzer {
 public:
  Fuzzer(Emulated& server, uint64_t seed)
      : server_(server), mappings_(server), pools_(server), random_(seed) {
    EXPECT_EQ(mappings_.reserve(&reserved_, kPiece, 0, 0, 0), CUDA_SUCCESS);
    addresses_.push_back(reserved_);
    handles_.push_back(pools_.default_pool(0));
    // Followed by a page that may not be touched: copies that leave the scratch are errors.
    void* room =
        mmap(nullptr, kScratch + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(static_cast<char*>(room) + kScratch, 4096, PROT_NONE);
    scratch_ = static_cast<uint8_t*>(room);
    for (size_t i = 0; i < std::size(kTargets); ++i)
      functions_.push_back(server.symbol<Function>(kTargets[i].symbol));
  }

  // Objects of every kind; those of earlier rounds are still tried.
  void refresh() {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    server_.cu.cuThreadExchangeStreamCaptureMode(&mode);
    map_again();
    for (int gpu = 0; gpu < 2; ++gpu) {
      reset(gpu);
      CUcontext context = server_.use(gpu);
      handles_.push_back(context);
      handles_.push_back(server_.stream(gpu));
      handles_.push_back(server_.recorded(nullptr));
      CUmodule module = nullptr;
      CUfunction function = nullptr;
      ASSERT_EQ(server_.cu.cuModuleLoadData(&module, cuda::pull_kernel_image()), CUDA_SUCCESS);
      ASSERT_EQ(server_.cu.cuModuleGetFunction(&function, module, cuda::kVectorKernelName),
                CUDA_SUCCESS);
      handles_.push_back(module);
      handles_.push_back(function);
      addresses_.push_back(server_.device_memory(4096));
      addresses_.push_back(pools_.allocated(4096, nullptr));
      addresses_.push_back(reinterpret_cast<uint64_t>(server_.pinned_memory(4096)));
    }
  }

  // One range serves all rounds: addresses that were given back might become the test's own memory.
  void map_again() {
    mappings_.unmap(reserved_, kPiece);  // or an earlier round has
    const CUmemGenericAllocationHandle memory = mappings_.memory_on(0, kPiece);
    ASSERT_EQ(mappings_.map(reserved_, kPiece, 0, memory, 0), CUDA_SUCCESS);
    ASSERT_EQ(mappings_.release(memory), CUDA_SUCCESS);
    const CUmemAccessDesc wanted = access_by(0);
    ASSERT_EQ(mappings_.set_access(reserved_, kPiece, &wanted, 1), CUDA_SUCCESS);
  }

  void call() {
    const size_t which = random_() % std::size(kTargets);
    uint64_t a[11] = {};
    for (size_t i = 0; kTargets[which].arguments[i] != 0; ++i)
      a[i] = argument(kTargets[which].arguments[i]);
    last = kTargets[which].symbol;
    const int result =
        functions_[which](a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10]);
    ++(result == CUDA_SUCCESS ? succeeded : failed);
  }

  int succeeded = 0;
  int failed = 0;

  const char* last = "";

 private:
  using Function = int (*)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                           uint64_t, uint64_t, uint64_t, uint64_t);
  static constexpr size_t kScratch = 1 << 20;
  static constexpr size_t kPiece = 2 << 20;

  void reset(int gpu) {
    const auto primary = server_.symbol<CUresult (*)(CUdevice)>("cuDevicePrimaryCtxReset_v2");
    EXPECT_EQ(primary(gpu), CUDA_SUCCESS);
  }

  uint64_t pick(std::initializer_list<uint64_t> from) {
    return *(from.begin() + random_() % from.size());
  }
  uint64_t scratch() { return reinterpret_cast<uint64_t>(scratch_) + random_() % (kScratch / 2); }

  uint64_t argument(char kind) {
    switch (kind) {
      case 'o': return random_() % 4 == 0 ? 0 : reinterpret_cast<uint64_t>(out_);
      case '1': return 1;
      case 'z': return random_() % 4 == 0 ? reinterpret_cast<uint64_t>(zeros_) : 0;
      case 'n': return number();
      case 'a': return random_() % 4 == 0 ? uint64_t{1} << (42 + random_() % 22) : random_() % 1500;
      case 's': return reinterpret_cast<uint64_t>(random_() % 3 == 0 ? nullptr : "braid_pull");
      case 'x': return pick({0, 4, 0xdeadbeefcafe0000, ~uint64_t{7}});
      case 'f': return random_() % 2 == 0 ? 0 : reinterpret_cast<uint64_t>(+[](void*) {});
      case 'h':
        if (random_() % 3 == 0) return pick({0, 1, 2, 3, 0x1234, 0xdeadbeefcafe, ~uint64_t{0}});
        return reinterpret_cast<uint64_t>(handles_[random_() % handles_.size()]);
      case 'q': return list(argument(random_() % 2 == 0 ? 'd' : 'p'));
      case 'l': return list(random_() % 100);
      case 'c': return random_() % 8 == 0 ? 0 : parameters();
      case 'd':
        if (random_() % 4 == 0) return pick({0, 1, 0x7000, 0xdeadbeefcafe0000, ~uint64_t{0}});
        return addresses_[random_() % addresses_.size()] + random_() % 3 * 4;
      default:  // p
        if (random_() % 4 == 0) return pick({0, 1, 0x7000, 0xdeadbeefcafe0000, ~uint64_t{0}});
        if (random_() % 4 == 0) return addresses_[random_() % addresses_.size()];
        return scratch();
    }
  }

  uint64_t list(uint64_t value) {
    lists_[++lists_made_ % std::size(lists_)] = value;
    return reinterpret_cast<uint64_t>(&lists_[lists_made_ % std::size(lists_)]);
  }

  // Numbers so small that copies stay where their addresses point, or so large that none is made.
  uint64_t parameters() {
    for (uint64_t& word : parameters_) switch (random_() % 8) {
        case 0:
        case 1: word = argument('d'); break;
        case 2: word = argument('p'); break;
        case 3: word = random_() % 16 == 0 ? ~uint64_t{0} >> random_() % 2 : 0; break;
        default: word = random_() % 8; break;
      }
    return reinterpret_cast<uint64_t>(parameters_);
  }

  uint64_t number() {
    switch (random_() % 4) {
      case 0: return random_() % 4;
      case 1: return random_() % 5000;
      case 2: return pick({~uint64_t{0}, uint64_t{1} << 31, uint64_t{1} << 40, 0xffffffff});
      default: return uint64_t{1} << random_() % 64;
    }
  }

  Emulated& server_;
  MemoryCalls mappings_;
  PoolCalls pools_;
  CUdeviceptr reserved_ = 0;
  std::mt19937_64 random_;
  uint8_t* scratch_ = nullptr;
  uint64_t out_[512] = {};
  uint64_t zeros_[64] = {};
  uint64_t lists_[8] = {};
  size_t lists_made_ = 0;
  uint64_t parameters_[64] = {};
  std::vector<void*> handles_;
  std::vector<uint64_t> addresses_;
  std::vector<Function> functions_;
};

TEST(Fuzz, NothingCrashesAndSanityReturns) {
  const char* fixed = std::getenv("BRAID_FUZZ_SEED");
  const uint64_t seed =
      fixed != nullptr ? std::strtoull(fixed, nullptr, 0) : std::random_device{}();
  std::printf("seed %llu (BRAID_FUZZ_SEED repeats it)\n", static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  Emulated server("h200x4", kFaultsStay);
  Fuzzer fuzzer(server, seed);
  for (int round = 0; round < 3000; ++round) {
    fuzzer.refresh();
    ASSERT_FALSE(testing::Test::HasFailure()) << "round " << round << " after " << fuzzer.last;
    for (int i = 0; i < 40; ++i) fuzzer.call();
  }
  // Neither all sense nor all nonsense.
  EXPECT_GT(fuzzer.succeeded, fuzzer.failed / 10);
  EXPECT_GT(fuzzer.failed, fuzzer.succeeded / 10);
  fuzzer.refresh();
  uint8_t sent[100];
  uint8_t got[100] = {};
  std::memset(sent, 0x3c, sizeof(sent));
  const CUdeviceptr device = server.device_memory(100);
  ASSERT_EQ(server.cu.cuMemcpyHtoD(device, sent, 100), CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuMemcpyDtoH(got, device, 100), CUDA_SUCCESS);
  EXPECT_EQ(std::memcmp(sent, got, 100), 0);
}

}  // namespace
}  // namespace braid::emulator_test
