#include "bench/fabric/target_process.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "bench/fabric/buffers.h"
#include "fabric/ofi/domain.h"

namespace braid::bench {

using fabric::Engine;

namespace {

constexpr unsigned kRestUs = 500;

size_t put(const std::vector<std::byte>& bytes, std::byte* into) {
  std::memcpy(into, bytes.data(), bytes.size());
  return bytes.size();
}

}  // namespace

struct TargetProcess::Shared {
  std::atomic<Serves> is_to_serve, serves;
  std::atomic<bool> is_ready, has_descriptor;
  size_t engine_address_bytes, plain_address_bytes, descriptor_bytes;
  std::byte engine_address[1024], plain_address[128], descriptor[1024];
  Plain::Target plain_target;
};

std::unique_ptr<Engine> open_engine(const Rails& rails) {
  std::vector<std::unique_ptr<fabric::Domain>> domains;
  for (int i = 1; i <= rails.count; ++i)
    domains.push_back(
        fabric::ofi::open_domain(*rails.quirks, "127.0.0." + std::to_string(i)).value());
  fabric::EngineOptions options;
  options.engine = static_cast<uint64_t>(getpid()) << 32 | (now_ns() & 0xffffffff);
  return Engine::open(std::move(domains), options).value();
}

void TargetProcess::run(const Rails& rails, Shared& shared, std::span<std::byte> memory) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  auto engine = open_engine(rails);
  Plain plain(*rails.quirks);
  shared.engine_address_bytes = put(encode(engine->address()), shared.engine_address);
  shared.plain_address_bytes = put(plain.address(), shared.plain_address);
  shared.plain_target = plain.expose(memory);
  shared.is_ready = true;
  std::optional<uint64_t> peer;
  while (!peer) {
    engine->step(now_ns());
    peer = engine->accept();
  }
  const uint64_t region = engine->add_region(memory).value();
  const auto granted = engine->grant(region, *peer, 0, memory.size()).value();
  shared.descriptor_bytes = put(encode(granted.descriptor), shared.descriptor);
  shared.has_descriptor = true;
  for (;;) {
    const Serves whom = shared.is_to_serve;
    shared.serves = whom;
    if (whom == Serves::kEnd) _exit(0);
    if (whom == Serves::kPlain)
      plain.poll();
    else
      engine->step(now_ns());
    if (whom == Serves::kNobody) usleep(kRestUs);
  }
}

TargetProcess::TargetProcess(const Rails& rails, std::span<std::byte> memory) {
  void* shared =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) {
    std::perror("mmap");
    _exit(1);
  }
  shared_ = new (shared) Shared();  // owner: the mapping
  shared_->is_to_serve = Serves::kBraid;
  process_ = fork();
  if (process_ == 0) run(rails, *shared_, memory);
  while (!shared_->is_ready) {
    usleep(1000);
    if (waitpid(process_, nullptr, WNOHANG) == 0) continue;
    std::fprintf(stderr, "the process that is written to has ended\n");
    _exit(1);
  }
}

TargetProcess::~TargetProcess() {
  shared_->is_to_serve = Serves::kEnd;
  waitpid(process_, nullptr, 0);
  munmap(shared_, sizeof(Shared));
}

void TargetProcess::serve(Serves whom) {
  shared_->is_to_serve = whom;
  while (shared_->serves != whom) sched_yield();
}

fabric::Address TargetProcess::engine_address() const {
  return fabric::decode_address({shared_->engine_address, shared_->engine_address_bytes}).value();
}

std::optional<fabric::Descriptor> TargetProcess::descriptor() const {
  if (!shared_->has_descriptor) return std::nullopt;
  return fabric::decode_descriptor({shared_->descriptor, shared_->descriptor_bytes}).value();
}

std::vector<std::byte> TargetProcess::plain_address() const {
  return {shared_->plain_address, shared_->plain_address + shared_->plain_address_bytes};
}

Plain::Target TargetProcess::plain_target() const { return shared_->plain_target; }

}  // namespace braid::bench
