#include "tools/transfer_target.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/try.h"
#include "cuda/scoped_context.h"
#include "tools/open_server.h"

namespace braid::tools {
namespace {

sigset_t end_signals() {
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGTERM);
  return ends;
}

Result<cuda::Driver> open_driver() {
  auto driver = open_server("");
  if (driver.ok()) return driver;
  return Status::error("memory of GPUs needs a GPU and its CUDA driver, libcuda.so.1",
                       "Leave out --seg_type VRAM, --gpu and --gpu-memory");
}

CUdeviceptr on_gpu(const std::byte* address) { return reinterpret_cast<CUdeviceptr>(address); }

}  // namespace

Result<TransferMemory> TransferMemory::open(uint64_t size_bytes, std::optional<int> gpu) {
  TransferMemory all(size_bytes);
  if (!gpu) return all;
  BRAID_LET(driver, open_driver());
  all.gpu_ = std::make_unique<Gpu>();
  all.gpu_->driver = driver;
  const std::string name = "GPU " + std::to_string(*gpu);
  CUdevice device = 0;
  BRAID_TRY(driver.check(driver.cuDeviceGet(&device, *gpu), "looking for " + name));
  BRAID_TRY(driver.check(driver.cuDevicePrimaryCtxRetain(&all.gpu_->context, device),
                         "opening the context of " + name));
  cuda::ScopedContext scope(driver, all.gpu_->context);
  BRAID_TRY(driver.check(scope.status(), "entering the context of " + name));
  BRAID_TRY(driver.check(driver.cuMemAlloc(&all.gpu_->memory, size_bytes),
                         "allocating " + std::to_string(size_bytes) + " bytes on " + name));
  all.address_ = reinterpret_cast<std::byte*>(all.gpu_->memory);
  return all;
}

TransferMemory::~TransferMemory() {
  if (gpu_ == nullptr || gpu_->memory == 0) return;
  const cuda::ScopedContext scope(gpu_->driver, gpu_->context);
  if (scope.status() == CUDA_SUCCESS) gpu_->driver.cuMemFree(gpu_->memory);
}

Status TransferMemory::add_to(Transfer& engine, Transfer::Rights rights) {
  if (is_on_gpu()) return engine.register_memory(address_, size_bytes_, rights).status();
  BRAID_LET(memory, engine.allocate_memory(size_bytes_, rights));
  address_ = static_cast<std::byte*>(memory.memory);
  return {};
}

Status TransferMemory::put(std::byte* to, const std::byte* from, uint64_t size_bytes) const {
  if (!is_on_gpu()) return std::memcpy(to, from, size_bytes), Status();
  const cuda::ScopedContext scope(gpu_->driver, gpu_->context);
  return gpu_->driver.check(gpu_->driver.cuMemcpyHtoD(on_gpu(to), from, size_bytes),
                            "filling memory of the GPU");
}

Status TransferMemory::get(std::byte* to, const std::byte* from, uint64_t size_bytes) const {
  if (!is_on_gpu()) return std::memcpy(to, from, size_bytes), Status();
  const cuda::ScopedContext scope(gpu_->driver, gpu_->context);
  return gpu_->driver.check(gpu_->driver.cuMemcpyDtoH(to, on_gpu(from), size_bytes),
                            "reading memory of the GPU");
}

Status load_driver_if(bool gpu_memory) { return gpu_memory ? open_driver().status() : Status(); }

void hold_end_signals() {
  const sigset_t ends = end_signals();
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
}

Status serve_until_the_end(Transfer& engine, int limit_s) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kLongestWait = std::chrono::hours(24);  // poll takes an int
  const auto end = Clock::now() + std::chrono::seconds(limit_s);
  BRAID_LET(notified, engine.event_descriptor());
  const sigset_t ends = end_signals();
  const int signals = signalfd(-1, &ends, SFD_CLOEXEC);
  if (signals < 0) return Status::error("there is no descriptor left for signals");
  pollfd all[] = {{signals, POLLIN, 0}, {notified, POLLIN, 0}};
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
    if (limit_s > 0 && left.count() <= 0) break;
    poll(all, 2, limit_s > 0 ? static_cast<int>(std::min(left, kLongestWait).count()) : -1);
    if (all[0].revents != 0) break;
    for (;;) {
      BRAID_LET(one, engine.next_notification(Transfer::Limit(0)));
      if (!one) break;
    }
  }
  close(signals);
  return {};
}

}  // namespace braid::tools
