#include "support/server.h"

#include <dlfcn.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <random>
#include <stdexcept>

#include "multipath/engine.h"

namespace braid::test {
namespace {

const char* real_driver() { return std::getenv("BRAID_TEST_DRIVER"); }

const char* driver_library() { return real_driver() != nullptr ? real_driver() : BRAID_EMULATOR; }

}  // namespace

bool server_is_emulated() { return real_driver() == nullptr; }

const Result<cuda::Driver>& server_driver() {
  static const Result<cuda::Driver> driver = [] {
    setenv("BRAID_SERVER", BRAID_TEST_PROFILES "/h20x8.json", 0);
    auto opened = cuda::open_driver(driver_library());
    if (opened.ok()) {
      const Status started = opened.value().check(opened.value().cuInit(0), "cuInit");
      if (!started.ok()) return Result<cuda::Driver>(started);
    }
    return opened;
  }();
  return driver;
}

void must(const cuda::Driver& driver, CUresult result, const char* call) {
  if (result != CUDA_SUCCESS)
    throw std::runtime_error(std::string(call) + ": " + driver.describe(result));
}

HostBuffer::HostBuffer(const cuda::Driver& driver, uint64_t size_bytes)
    : driver_(driver), size_bytes_(size_bytes) {
  void* memory = nullptr;
  MUST(driver_, cuMemHostAlloc(&memory, size_bytes, CU_MEMHOSTALLOC_PORTABLE));
  data_ = static_cast<uint8_t*>(memory);
}

HostBuffer::HostBuffer(const cuda::Driver& driver, uint64_t size_bytes, unsigned flags)
    : driver_(driver), size_bytes_(size_bytes), registered_(true) {
  void* memory =
      mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  data_ = static_cast<uint8_t*>(memory);
  MUST(driver_, cuMemHostRegister(data_, size_bytes, flags));
}

std::unique_ptr<HostBuffer> HostBuffer::registered(const cuda::Driver& driver, uint64_t size_bytes,
                                                   unsigned flags) {
  return std::unique_ptr<HostBuffer>(new HostBuffer(driver, size_bytes, flags));
}

HostBuffer::~HostBuffer() {
  if (registered_) {
    driver_.cuMemHostUnregister(data_);
    munmap(data_, size_bytes_);
  } else {
    driver_.cuMemFreeHost(data_);
  }
}

void HostBuffer::fill_random(uint64_t seed) {
  std::mt19937_64 random(seed);
  for (uint64_t at = 0; at < size_bytes_; at += sizeof(uint64_t)) {
    const uint64_t word = random();
    std::memcpy(data_ + at, &word, std::min<uint64_t>(sizeof word, size_bytes_ - at));
  }
}

DeviceBuffer::DeviceBuffer(const cuda::Driver& driver, uint64_t size_bytes) : driver_(driver) {
  MUST(driver_, cuCtxGetCurrent(&context_));
  MUST(driver_, cuMemAlloc(&address_, size_bytes));
}

DeviceBuffer::~DeviceBuffer() {
  CUcontext before = nullptr;
  driver_.cuCtxGetCurrent(&before);
  driver_.cuCtxSetCurrent(context_);
  driver_.cuMemFree(address_);
  driver_.cuCtxSetCurrent(before);
}

void ServerTest::choose_profile(const std::string& name) {
  setenv("BRAID_SERVER", (BRAID_TEST_PROFILES "/" + name + ".json").c_str(), 0);
}

void* ServerTest::symbol(const char* name) {
  static void* const library = dlopen(driver_library(), RTLD_NOW);
  void* found = dlsym(library, name);
  if (found == nullptr) throw std::runtime_error(std::string("the driver has no ") + name);
  return found;
}

void ServerTest::SetUp() {
  const auto& opened = server_driver();
  if (!opened.ok() && is_emulated()) FAIL() << opened.status().message();
  if (!opened.ok()) GTEST_SKIP() << "waived: " << opened.status().message();
  driver_ = &opened.value();
  int count = 0;
  MUST(driver(), cuDeviceGetCount(&count));
  if (count < gpus_needed)
    GTEST_SKIP() << "waived: needs " << gpus_needed << " GPUs, this server has " << count;
  for (int gpu = 0; gpu < count; ++gpu) {
    CUdevice device = 0;
    CUcontext context = nullptr;
    MUST(driver(), cuDeviceGet(&device, gpu));
    MUST(driver(), cuDevicePrimaryCtxRetain(&context, device));
    contexts_.push_back(context);
  }
  use_gpu(0);
}

Options ServerTest::every_size() {
  Options options;
  options.threshold_bytes = 1;
  return options;
}

std::unique_ptr<multipath::Engine> ServerTest::open_engine(Options options) {
  auto engine = multipath::Engine::open(driver(), options);
  if (!engine.ok()) throw std::runtime_error(engine.status().message());
  return std::move(engine).value();
}

ServerTest::~ServerTest() {
  for (CUstream stream : streams_) driver().cuStreamDestroy(stream);
}

CUstream ServerTest::new_stream(unsigned flags) {
  CUstream stream = nullptr;
  MUST(driver(), cuStreamCreate(&stream, flags));
  const std::lock_guard lock(streams_lock_);
  streams_.push_back(stream);
  return stream;
}

CUevent ServerTest::new_event() const {
  CUevent event = nullptr;
  MUST(driver(), cuEventCreate(&event, CU_EVENT_DEFAULT));
  return event;
}

double ServerTest::elapsed_us(CUevent begin, CUevent end) const {
  float elapsed_ms = 0;
  MUST(driver(), cuEventElapsedTime(&elapsed_ms, begin, end));
  return static_cast<double>(elapsed_ms) * 1000;
}

}  // namespace braid::test
