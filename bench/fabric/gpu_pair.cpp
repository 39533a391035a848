#include "bench/fabric/gpu_pair.h"

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <numeric>

#include "fabric/library/open_wire.h"
#include "fabric/local/domain.h"

namespace braid::bench {
namespace {

using fabric::Engine;

constexpr uint64_t kUnderWayBytes = 64 << 20;
constexpr uint64_t kPagesAtOnce = 256;
constexpr uint64_t kLimitNs = 30'000'000'000;
const std::vector<topology::Nic> kNics;  // none limits loopback

uint64_t now_ns() {
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

/// Others run where there are fewer cores than processes that look.
void step(Engine& engine) {
  if (!engine.step(now_ns())) sched_yield();
}

[[noreturn]] void end(const std::string& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  _exit(1);
}

template <typename T>
T value_of(Result<T> result) {
  if (!result.ok()) end(result.status().message());
  return std::move(result).value();
}

uint64_t word_at(uint64_t index, uint64_t seed) { return (index + seed) * 0x9e3779b97f4a7c15; }

struct Bytes {
  size_t size = 0;
  std::byte data[1024];
  void put(const std::vector<std::byte>& bytes) {
    size = bytes.size();
    std::copy(bytes.begin(), bytes.end(), data);
  }
  fabric::Bytes get() const { return {data, size}; }
};

}  // namespace

struct GpuPair::Shared {
  enum Phase { kServe, kCheckGpu, kCheckHost, kEnd };
  std::atomic<int> ready{0};  // steps of the owner
  std::atomic<int> phase{kServe};
  std::atomic<uint64_t> seed{0};
  std::atomic<uint64_t> checked_bytes{0};  // from the front
  std::atomic<bool> is_right{false};
  Bytes address, descriptors[2];
};

void must(const cuda::Driver& driver, CUresult result, const char* call) {
  if (result != CUDA_SUCCESS) end(std::string(call) + ": " + driver.describe(result));
}
#define MUST(driver, call) ::braid::bench::must(driver, (driver).call, #call)

namespace {

/// Mapped for its own GPU alone, as vLLM's sleep mode and PyTorch's expandable segments do. Until
/// the process ends.
CUdeviceptr map_memory(const cuda::Driver& driver, CUdevice gpu, uint64_t size_bytes) {
  CUmemAllocationProp kind{};
  kind.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  kind.location = {CU_MEM_LOCATION_TYPE_DEVICE, gpu};
  kind.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  size_t granule_bytes = 0;
  MUST(driver,
       cuMemGetAllocationGranularity(&granule_bytes, &kind, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
  const size_t mapped_bytes = (size_bytes + granule_bytes - 1) / granule_bytes * granule_bytes;
  const CUmemAccessDesc access{kind.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUmemGenericAllocationHandle handle = 0;
  CUdeviceptr address = 0;
  MUST(driver, cuMemCreate(&handle, mapped_bytes, &kind, 0));
  MUST(driver, cuMemAddressReserve(&address, mapped_bytes, 0, 0, 0));
  MUST(driver, cuMemMap(address, mapped_bytes, 0, handle, 0));
  MUST(driver, cuMemSetAccess(address, mapped_bytes, &access, 1));
  return address;
}

}  // namespace

Memories::Memories(const cuda::Driver& driver, int gpu, uint64_t size_bytes, bool is_mapped)
    : host(fabric::gpu::HostMemory::open(size_bytes)) {
  CUdevice device = 0;
  MUST(driver, cuDeviceGet(&device, gpu));
  MUST(driver, cuDevicePrimaryCtxRetain(&context, device));
  MUST(driver, cuCtxSetCurrent(context));
  if (is_mapped)
    address = map_memory(driver, device, size_bytes);
  else
    MUST(driver, cuMemAlloc(&address, size_bytes));
}

GpuPair::GpuPair(const GpuPairOptions& options) : options_(options) {
  void* shared =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) end("no shared memory");
  shared_ = new (shared) Shared();  // owner: the mapping
  other_ = fork();
  if (other_ == 0) serve();
  start_driver(0);
  while (shared_->ready < 1) {
    usleep(1000);
    if (waitpid(other_, nullptr, WNOHANG) == other_) end("the other process has ended");
  }
  engine_ = open_engine();
  const auto address = value_of(fabric::decode_address(shared_->address.get()));
  const uint64_t peer = value_of(engine_->connect(address, now_ns() + kLimitNs));
  while (engine_->peer_state(peer).value() == fabric::PeerState::kConnecting) step(*engine_);
  while (shared_->ready < 2) step(*engine_);
  const std::span<std::byte> memory[] = {memories_->of_gpu(), memories_->host->bytes()};
  for (int kind = 0; kind < 2; ++kind) {
    const auto descriptor = value_of(fabric::decode_descriptor(shared_->descriptors[kind].get()));
    targets_[kind] = value_of(engine_->open_target(descriptor));
    regions_[kind] = value_of(engine_->add_region(memory[kind]));
  }
}

GpuPair::~GpuPair() {
  shared_->phase = Shared::kEnd;
  waitpid(other_, nullptr, 0);
  engine_.reset();
  munmap(shared_, sizeof(Shared));
}

void GpuPair::start_driver(int side) {
  driver_ = value_of(cuda::open_driver());
  MUST(driver_, cuInit(0));
  int count = 0;
  MUST(driver_, cuDeviceGetCount(&count));
  if (count == 0) end("no GPU");
  memories_ = std::make_unique<Memories>(driver_, options_.gpus[side] % count,
                                         options_.memory_bytes, options_.is_mapped);
}

std::unique_ptr<Engine> GpuPair::open_engine() const {
  std::vector<std::unique_ptr<fabric::Domain>> rails;
  const fabric::ofi::Quirks* quirks = fabric::ofi::find_quirks(options_.wire);
  if (options_.wire == "local")
    rails.push_back(value_of(fabric::local::open_domain()));
  else if (quirks == nullptr)
    end("braid does not know the provider " + options_.wire);
  else
    rails.push_back(value_of(fabric::open_wire(
        *quirks, "127.0.0.1", value_of(fabric::endpoint_count(1, kNics)), true, {})));
  fabric::EngineOptions options;
  options.heartbeat.interval_ns = 0;  // it is silent while others have their turns
  options.engine = static_cast<uint64_t>(getpid()) << 32 | (now_ns() & 0xffffffff);
  return value_of(Engine::open(std::move(rails), options));
}

/// The process that is written to.
void GpuPair::serve() {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  start_driver(1);
  auto engine = open_engine();
  shared_->address.put(encode(engine->address()));
  shared_->ready = 1;
  std::optional<uint64_t> peer;
  while (!peer) {
    step(*engine);
    peer = engine->accept();
  }
  const std::span<std::byte> memory[] = {memories_->of_gpu(), memories_->host->bytes()};
  for (int kind = 0; kind < 2; ++kind) {
    const uint64_t region = value_of(engine->add_region(memory[kind]));
    const auto granted = value_of(engine->grant(region, *peer, 0, memory[kind].size()));
    shared_->descriptors[kind].put(encode(granted.descriptor));
  }
  shared_->ready = 2;
  for (int phase = 0; phase != Shared::kEnd; phase = shared_->phase) {
    step(*engine);
    if (phase != Shared::kCheckGpu && phase != Shared::kCheckHost) continue;
    shared_->is_right = is_right(phase == Shared::kCheckGpu ? Kind::kGpu : Kind::kHost,
                                 shared_->seed, shared_->checked_bytes);
    shared_->phase = Shared::kServe;
  }
  engine.reset();
  _exit(0);
}

// ---- Writes ----

uint64_t GpuPair::pages_at_once(uint64_t size_bytes, bool is_paged) const {
  return is_paged ? std::min(kPagesAtOnce, options_.memory_bytes / size_bytes) : 1;
}

uint64_t GpuPair::written_bytes(uint64_t size_bytes, bool is_paged) const {
  const uint64_t unit_bytes = pages_at_once(size_bytes, is_paged) * size_bytes;
  return options_.memory_bytes / unit_bytes * unit_bytes;
}

void GpuPair::write(Kind kind, uint64_t size_bytes, bool is_paged, uint64_t times) {
  const uint64_t places = options_.memory_bytes / size_bytes;
  const uint64_t at_once = pages_at_once(size_bytes, is_paged);
  const uint64_t depth = std::max<uint64_t>(kUnderWayBytes / (size_bytes * at_once), 2);
  std::deque<uint64_t> tickets;
  for (uint64_t posted = 0, count = places / at_once * times; posted < count || !tickets.empty();) {
    for (; posted < count && tickets.size() < depth; ++posted) {
      const uint64_t first = posted % (places / at_once) * at_once;
      tickets.push_back(is_paged ? post_pages(kind, first, at_once, size_bytes)
                                 : post(kind, first * size_bytes, size_bytes));
    }
    step(*engine_);
    while (!tickets.empty() && has_ended(tickets.front())) tickets.pop_front();
  }
}

uint64_t GpuPair::post(Kind kind, uint64_t offset_bytes, uint64_t size_bytes) {
  const auto which = static_cast<size_t>(kind);
  return value_of(engine_->write(regions_[which], targets_[which],
                                 {offset_bytes, offset_bytes, size_bytes}, 1, now_ns() + kLimitNs));
}

uint64_t GpuPair::post_pages(Kind kind, uint64_t first, uint64_t count, uint64_t page_bytes) {
  const auto which = static_cast<size_t>(kind);
  fabric::Pages pages{{}, page_bytes, 0};
  pages.indices.resize(count);
  std::iota(pages.indices.begin(), pages.indices.end(), static_cast<uint32_t>(first));
  return value_of(engine_->write_pages(regions_[which], targets_[which], page_bytes, pages, pages,
                                       1, now_ns() + kLimitNs));
}

bool GpuPair::has_ended(uint64_t ticket) {
  const fabric::TicketState state = engine_->state(ticket).value();
  if (state == fabric::TicketState::kPending) return false;
  if (state != fabric::TicketState::kDone) end("a write has failed");
  engine_->forget(ticket);
  return true;
}

// ---- Bytes ----

void GpuPair::fill(Kind kind, uint64_t seed) {
  std::vector<uint64_t> words(options_.memory_bytes / sizeof(uint64_t));
  for (uint64_t i = 0; i < words.size(); ++i) words[i] = word_at(i, seed);
  if (kind == Kind::kHost)
    std::memcpy(memories_->host->bytes().data(), words.data(), options_.memory_bytes);
  else
    MUST(driver_, cuMemcpyHtoD(memories_->address, words.data(), options_.memory_bytes));
  MUST(driver_, cuCtxSynchronize());
}

bool GpuPair::is_right(Kind kind, uint64_t seed, uint64_t checked_bytes) const {
  std::vector<uint64_t> words(options_.memory_bytes / sizeof(uint64_t));
  if (kind == Kind::kHost)
    std::memcpy(words.data(), memories_->host->bytes().data(), options_.memory_bytes);
  else
    MUST(driver_, cuMemcpyDtoH(words.data(), memories_->address, options_.memory_bytes));
  for (uint64_t i = 0; i * sizeof(uint64_t) < checked_bytes; ++i) {
    const uint64_t expected = word_at(i, seed);
    const uint64_t part = std::min(sizeof(uint64_t), checked_bytes - i * sizeof(uint64_t));
    if (std::memcmp(&words[i], &expected, part) != 0) return false;
  }
  return true;
}

bool GpuPair::verify(Kind kind, uint64_t size_bytes, bool is_paged) {
  fill(kind, ++seed_);
  write(kind, size_bytes, is_paged, 1);
  shared_->seed = seed_;
  shared_->checked_bytes = written_bytes(size_bytes, is_paged);
  shared_->phase = kind == Kind::kGpu ? Shared::kCheckGpu : Shared::kCheckHost;
  while (shared_->phase != Shared::kServe) step(*engine_);
  return shared_->is_right;
}

}  // namespace braid::bench
