// A process with one rank of a group: kv_worker RANK. It reads the messages of its leader's steps
// on standard input (worker_messages.h), carries them out, verifies every byte that a step reads,
// and answers on standard output.
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <stdexcept>

#include "cuda/driver.h"
#include "kv/worker_messages.h"
#include "support/server.h"

namespace braid::kv::test {
namespace {

using braid::test::DeviceBuffer;
using braid::test::HostBuffer;

// The rank's own GPU, if there are so many.
const cuda::Driver& open_gpu(uint32_t rank) {
  setenv("BRAID_SERVER", BRAID_PROFILES "/h200x4.json", 0);
  const char* named = std::getenv("BRAID_TEST_DRIVER");
  static const auto driver = cuda::open_driver(named != nullptr ? named : BRAID_EMULATOR).value();
  int gpus = 0;
  CUdevice device = 0;
  CUcontext context = nullptr;
  MUST(driver, cuInit(0));
  MUST(driver, cuDeviceGetCount(&gpus));
  MUST(driver, cuDeviceGet(&device, static_cast<int>(rank) % gpus));
  MUST(driver, cuDevicePrimaryCtxRetain(&context, device));
  MUST(driver, cuCtxSetCurrent(context));
  return driver;
}

class Worker {
 public:
  // Ranks keep their caches in different orders: what is on the host is the same.
  explicit Worker(uint32_t rank)
      : rank_(rank),
        driver_(open_gpu(rank)),
        segments_(Rotation::segments(kModel,
                                     rank % 2 == 0 ? Rotation::GpuOrder::kLayerFirst
                                                   : Rotation::GpuOrder::kBlockFirst,
                                     kGpuSlots)
                      .value()) {
    for (const Rotation::Segment& segment : segments_) block_bytes_ += segment.size_bytes;
    cache_ = std::make_unique<DeviceBuffer>(driver_, kGpuSlots * block_bytes_);
    CUcontext context = nullptr;
    MUST(driver_, cuCtxGetCurrent(&context));
    MUST(driver_, cuStreamCreate(&compute_, CU_STREAM_NON_BLOCKING));
    worker_ = std::make_unique<RotationWorker>(
        RotationWorker::open(
            {segments_, kGpuSlots, kHostSlots, {{context, cache_->at(), compute_}}}, rank)
            .value());
  }

  StepReply step(const StepMessage& message) {
    StepReply reply;
    uint64_t step = 0;
    if (!message.commands.empty()) {
      const auto applied = worker_->apply(message.commands);
      reply.error = applied.status().message();
      if (applied.ok()) step = applied.value().step;
    }
    if (reply.error.empty()) reply.right = run(message.accesses, step);
    const auto report = worker_->report().value();
    reply.report.assign(report.data(), report.data() + report.size());
    return reply;
  }

 private:
  std::vector<uint8_t> run(const std::vector<Access>& accesses, uint64_t step) {
    std::vector<std::unique_ptr<HostBuffer>> bytes;
    for (const Access& access : accesses) {
      bytes.push_back(std::make_unique<HostBuffer>(driver_, block_bytes_));
      launch(access, words(*bytes.back()));
    }
    if (step != 0 && !worker_->end_step().ok()) throw std::runtime_error("end_step");
    MUST(driver_, cuStreamSynchronize(compute_));
    std::vector<uint8_t> right;
    for (size_t i = 0; i < accesses.size(); ++i)
      right.push_back(is_right(accesses[i], words(*bytes[i])));
    return right;
  }

  std::span<uint64_t> words(HostBuffer& buffer) const {
    return {reinterpret_cast<uint64_t*>(buffer.data()), block_bytes_ / sizeof(uint64_t)};
  }

  void launch(const Access& access, std::span<uint64_t> words) {
    if (access.kind == Access::kReadOnHost) {
      std::memcpy(words.data(), worker_->host_block(static_cast<uint32_t>(access.slot)),
                  block_bytes_);
      return;
    }
    if (access.kind == Access::kWrite)
      for (size_t i = 0; i < words.size(); ++i) words[i] = word_at(rank_, access.word, i);
    auto* bytes = reinterpret_cast<char*>(words.data());
    for (const Rotation::Segment& segment : segments_) {
      const CUdeviceptr there =
          cache_->at(segment.gpu_base_bytes + segment.gpu_stride_bytes * access.slot);
      if (access.kind == Access::kWrite)
        MUST(driver_, cuMemcpyHtoDAsync(there, bytes, segment.size_bytes, compute_));
      else
        MUST(driver_, cuMemcpyDtoHAsync(bytes, there, segment.size_bytes, compute_));
      bytes += segment.size_bytes;
    }
  }

  bool is_right(const Access& access, std::span<const uint64_t> words) const {
    for (size_t i = 0; i < words.size(); ++i)
      if (words[i] != word_at(rank_, access.word, i)) return false;
    return true;
  }

  const uint32_t rank_;
  const cuda::Driver& driver_;
  const std::vector<Rotation::Segment> segments_;
  uint64_t block_bytes_ = 0;
  std::unique_ptr<DeviceBuffer> cache_;
  CUstream compute_ = nullptr;
  std::unique_ptr<RotationWorker> worker_;
};

}  // namespace
}  // namespace braid::kv::test

int main(int count, char** words) {
  using namespace braid::kv::test;
  if (count != 2) return 2;
  Worker worker(static_cast<uint32_t>(std::atoi(words[1])));
  StepMessage message;
  while (receive_list(STDIN_FILENO, message.commands) &&
         receive_list(STDIN_FILENO, message.accesses)) {
    const StepReply reply = worker.step(message);
    if (!send_list(STDOUT_FILENO, reply.report) || !send_list(STDOUT_FILENO, reply.right) ||
        !send_list(STDOUT_FILENO, reply.error))
      return 1;
  }
  return 0;
}
