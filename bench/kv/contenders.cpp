#include "bench/kv/contenders.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <utility>

namespace braid::bench {
namespace {

constexpr uint32_t kSeed = 7;

[[noreturn]] void fail(const std::string& why) {
  std::fprintf(stderr, "rotation: %s\n", why.c_str());
  std::exit(1);
}

// What block `number` holds.
void fill(uint64_t number, std::vector<uint64_t>& words) {
  for (size_t i = 0; i < words.size(); ++i) words[i] = number << 32 ^ i * 0x9E3779B97F4A7C15;
}

bool holds(const void* memory, uint64_t number, std::vector<uint64_t>& words) {
  fill(number, words);
  return std::memcmp(memory, words.data(), words.size() * sizeof(uint64_t)) == 0;
}

std::vector<uint64_t> words_of(uint64_t block_bytes) {
  return std::vector<uint64_t>(block_bytes / sizeof(uint64_t));
}

void write_blocks(const Gpu& gpu, CUdeviceptr first, uint64_t block_bytes, uint32_t blocks,
                  uint64_t first_number) {
  std::vector<uint64_t> words = words_of(block_bytes);
  for (uint32_t i = 0; i < blocks; ++i) {
    fill(first_number + i, words);
    must(gpu.driver, gpu.driver.cuMemcpyHtoD(first + i * block_bytes, words.data(), block_bytes),
         "writing a block");
  }
}

std::vector<uint32_t> shuffled(uint32_t count) {
  std::vector<uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(kSeed));
  return order;
}

double us(uint64_t begin_ns, uint64_t end_ns) {
  return static_cast<double>(end_ns - begin_ns) / 1e3;
}

}  // namespace

const char* moves_name(Moves moves) {
  return moves == Moves::kDown ? "down" : moves == Moves::kUp ? "up" : "both";
}

void must(const cuda::Driver& driver, CUresult result, const char* what) {
  if (result != CUDA_SUCCESS) fail(std::string(what) + ": " + driver.describe(result));
}

DeviceMemory::DeviceMemory(const Gpu& gpu, uint64_t size_bytes) : driver_(gpu.driver) {
  must(driver_, driver_.cuMemAlloc(&address_, size_bytes), "memory for a cache");
}

DeviceMemory::~DeviceMemory() { driver_.cuMemFree(address_); }

// ---- Rotation ----

RotatingCache::RotatingCache(const Gpu& gpu, uint64_t block_bytes, uint32_t blocks,
                             std::unique_ptr<kv::Copier> copier)
    : random_(kSeed), gpu_(gpu), block_bytes_(block_bytes), memory_(gpu, 2 * blocks * block_bytes) {
  auto layout = kv::Layout::of({{.gpu_stride_bytes = block_bytes, .size_bytes = block_bytes}});
  if (!layout.ok()) fail(layout.status().message());
  auto opened = kv::RotationEngine::open(
      gpu.driver,
      {layout.value(), {2 * blocks, 2 * blocks}, {{gpu.context, memory_.at(), gpu.compute}}},
      std::move(copier));
  if (!opened.ok()) fail(opened.status().message());
  rotation_ = std::move(opened).value();
  rotation_->begin_step();
  while (every_.size() < 2 * blocks) every_.push_back(rotation_->create().id);
  write_blocks(gpu, memory_.at(), block_bytes, 2 * blocks, 0);
  for (const kv::BlockId id : every_) {
    (void)rotation_->seal(id);
    (void)rotation_->end_use(id);
  }
  if (Status ended = rotation_->end_step(); !ended.ok()) fail(ended.message());
  for (const uint32_t i : shuffled(2 * blocks))
    (on_gpu_.size() < blocks ? on_gpu_ : on_host_).push_back(every_[i]);
  must_submit({.evict = on_host_, .writes_through = false});
}

void RotatingCache::must_submit(const kv::Plan& plan) {
  const kv::Submitted submitted = rotation_->submit(plan);
  if (!submitted.failure.ok()) fail(submitted.failure.message());
  if (!submitted.refused.empty() || submitted.loads_left > 0)
    fail("a plan of the benchmark was refused");
}

Turn RotatingCache::submit(const kv::Plan& plan) {
  Clock& clock = *gpu_.driver.clock;
  const uint64_t begin_ns = clock.now_ns(), call_ns = system_clock().now_ns();
  must_submit(plan);
  const double submit_us = us(call_ns, system_clock().now_ns());
  rotation_->wait();
  const double seconds = us(begin_ns, clock.now_ns()) / 1e6;
  (void)rotation_->poll();
  return {seconds, submit_us, block_bytes_ * (plan.evict.size() + plan.load.size())};
}

// A synced block that the host is to forget goes down by a copy again.
void RotatingCache::forget_host(const std::vector<kv::BlockId>& ids) {
  for (const kv::BlockId id : ids) (void)rotation_->drop_host(id);
}

// In another order each time: blocks that lie beside each other would travel as one, and what is
// measured are copies of this size.
void RotatingCache::shuffle() {
  for (std::vector<kv::BlockId>* ids : {&on_gpu_, &on_host_})
    std::shuffle(ids->begin(), ids->end(), random_);
}

Turn RotatingCache::turn(Moves moves) {
  Turn turn;
  shuffle();
  if (moves == Moves::kDown) {
    turn = submit({.evict = on_gpu_, .writes_through = false});
    shuffle();
    submit({.load = on_gpu_, .landing = kv::Landing::kPolled, .writes_through = false});
    forget_host(on_gpu_);
  } else if (moves == Moves::kUp) {
    turn = submit({.load = on_host_, .landing = kv::Landing::kPolled, .writes_through = false});
    submit({.evict = on_host_, .writes_through = false});
  } else {
    turn = submit({.evict = on_gpu_,
                   .load = on_host_,
                   .landing = kv::Landing::kPolled,
                   .writes_through = false});
    forget_host(on_host_);
    on_gpu_.swap(on_host_);
  }
  return turn;
}

// All goes down, and is looked at there.
bool RotatingCache::verify() {
  submit({.evict = on_gpu_, .writes_through = false});
  std::vector<uint64_t> words = words_of(block_bytes_);
  bool is_right = true;
  for (size_t i = 0; i < every_.size(); ++i) {
    const std::byte* block = rotation_->host_block(0, every_[i]);
    is_right = is_right && block != nullptr && holds(block, i, words);
  }
  submit({.load = on_gpu_, .landing = kv::Landing::kPolled, .writes_through = false});
  forget_host(on_gpu_);
  return is_right;
}

// ---- Bare batches ----

Status OneByOneCopier::copy(std::span<const library::Copy> copies, CUstream stream, kv::Urgency) {
  return driver_.check(library::copy_natively(driver_, copies, stream, false, arrays_), "a copy");
}

BareBatches::BareBatches(const Gpu& gpu, uint64_t block_bytes, uint32_t blocks,
                         std::unique_ptr<kv::Copier> copier, Duplex duplex)
    : gpu_(gpu),
      block_bytes_(block_bytes),
      duplex_(duplex),
      order_(shuffled(blocks)),
      memory_(gpu, 2 * blocks * block_bytes),
      copier_(std::move(copier)) {
  auto host = kv::HostPool::open(gpu.driver, 2 * blocks * block_bytes);
  if (!host.ok()) fail(host.status().message());
  host_ = std::move(host).value();
  for (CUstream* stream : {&down_, &up_})
    must(gpu.driver, gpu.driver.cuStreamCreate(stream, CU_STREAM_NON_BLOCKING), "a stream");
  write_blocks(gpu, memory_.at(), block_bytes, blocks, 0);
  std::vector<uint64_t> words = words_of(block_bytes);
  for (uint32_t i = blocks; i < 2 * blocks; ++i) {
    fill(i, words);
    std::memcpy(host_->data() + i * block_bytes, words.data(), block_bytes);
  }
}

BareBatches::~BareBatches() {
  for (const CUstream stream : {down_, up_}) gpu_.driver.cuStreamDestroy(stream);
}

// From where rotation's blocks lie, shuffled, to slot after slot.
std::vector<library::Copy> BareBatches::list(bool is_down) const {
  std::vector<library::Copy> copies;
  const auto host = reinterpret_cast<uint64_t>(host_->data());
  const uint64_t blocks = order_.size();
  for (const uint32_t i : order_) {
    const uint64_t offset = (is_down ? i : blocks + i) * block_bytes_;
    if (is_down)
      copies.push_back({host + offset, memory_.at(offset), block_bytes_});
    else
      copies.push_back({memory_.at(offset), host + offset, block_bytes_});
  }
  std::sort(copies.begin(), copies.end(), [](const library::Copy& a, const library::Copy& b) {
    return a.destination < b.destination;
  });
  return copies;
}

Turn BareBatches::turn(Moves moves) {
  const std::vector<library::Copy> down =
      moves == Moves::kUp ? std::vector<library::Copy>() : list(true);
  const std::vector<library::Copy> up =
      moves == Moves::kDown ? std::vector<library::Copy>() : list(false);
  Clock& clock = *gpu_.driver.clock;
  const uint64_t begin_ns = clock.now_ns(), call_ns = system_clock().now_ns();
  for (const auto& [copies, stream] : {std::pair(&down, down_), std::pair(&up, up_)}) {
    if (copies->empty()) continue;
    const Status copied = copier_->copy(*copies, stream, kv::Urgency::kUrgent);
    if (!copied.ok()) fail(copied.message());
    if (duplex_ == Duplex::kSerial)
      must(gpu_.driver, gpu_.driver.cuStreamSynchronize(stream), "waiting for a direction");
  }
  const double submit_us = us(call_ns, system_clock().now_ns());
  for (const CUstream stream : {down_, up_})
    must(gpu_.driver, gpu_.driver.cuStreamSynchronize(stream), "waiting for a batch");
  return {us(begin_ns, clock.now_ns()) / 1e6, submit_us, block_bytes_ * (down.size() + up.size())};
}

bool BareBatches::verify() {
  std::vector<uint64_t> words = words_of(block_bytes_), landed = words;
  bool is_right = true;
  turn(Moves::kBoth);
  for (uint64_t i = 0; i < order_.size(); ++i) {
    const uint64_t up = order_.size() + i;
    must(gpu_.driver,
         gpu_.driver.cuMemcpyDtoH(landed.data(), memory_.at(up * block_bytes_), block_bytes_),
         "reading a block");
    is_right = is_right && holds(host_->data() + i * block_bytes_, i, words) &&
               holds(landed.data(), up, words);
  }
  return is_right;
}

}  // namespace braid::bench
