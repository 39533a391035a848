#include "bench/fabric/target_process.h"

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <string>

#include "bench/fabric/buffers.h"
#include "bench/fabric/library_owner.h"
#include "fabric/local/domain.h"
#include "fabric/local/shared_memory.h"
#include "fabric/ofi/domain.h"

namespace braid::bench {

using fabric::Engine;

namespace {

constexpr unsigned kRestUs = 500;
constexpr uint64_t kLimitNs = 60'000'000'000;

/// Bytes that one process leaves for the other.
template <size_t kBytesMax>
struct Note {
  std::atomic<size_t> size_bytes;  // 0: not written yet
  std::byte bytes[kBytesMax];

  void put(const std::vector<std::byte>& all) {
    std::memcpy(bytes, all.data(), all.size());
    size_bytes = all.size();
  }
  std::vector<std::byte> get() const { return {bytes, bytes + size_bytes}; }
};

struct SharedMember {
  Note<1024> fabric_address, engine_address, descriptor;
  Note<128> plain_address;
  Plain::Target plain_target;
  std::atomic<uint64_t> barriers_over;
};

}  // namespace

struct TargetProcess::Shared {
  size_t member_count = 1;
  std::atomic<Serves> is_to_serve, serves;
  std::atomic<bool> is_ready;
  std::atomic<uint64_t> barriers;  // to be taken part in, since the beginning
  Note<128> plain_address;         // of the process that writes
  Plain::Target plain_target;
  SharedMember members[kMembers];
};

std::unique_ptr<Engine> open_engine(const Rails& rails) {
  static uint64_t opened = 0;
  std::vector<std::unique_ptr<fabric::Domain>> domains;
  for (int i = 1; i <= rails.count; ++i)
    domains.push_back(
        rails.is_local
            ? fabric::local::open_domain().value()
            : fabric::ofi::open_domain(*rails.quirks, "127.0.0." + std::to_string(i)).value());
  fabric::EngineOptions options;
  options.heartbeat.interval_ns = 0;  // it is silent while others have their turns
  options.engine = static_cast<uint64_t>(getpid()) << 32 | ((now_ns() + opened++) & 0xffffffff);
  return Engine::open(std::move(domains), options).value();
}

/// What runs in the other process.
class TargetProcess::Server {
 public:
  Server(const TargetOptions& options, Shared& shared, TargetMemory memory)
      : shared_(shared),
        owned_(std::move(memory)),
        memory_(owned_.bytes()),
        has_barriers_(options.pattern == Pattern::kBarrier) {
    const Rails& rails = options.rails;
    for (size_t i = 0; i < shared.member_count; ++i) {
      SharedMember& note = shared.members[i];
      Member& member = members_.emplace_back(
          Member{note, std::make_unique<LibraryOwner>(rails.provider(), rails.count),
                 options.has_engine ? open_engine(rails) : nullptr, Plain(*rails.quirks)});
      note.fabric_address.put(member.owner->address());
      if (options.has_engine) note.engine_address.put(encode(member.engine->address()));
      note.plain_address.put(member.plain.address());
      note.plain_target = member.plain.expose(memory_);
    }
    shared.is_ready = true;
    for (Member& member : members_) member.owner->grant(memory_);
    for (size_t i = 0; options.has_engine && i < members_.size(); ++i) grant(members_[i], i);
  }

  void run() {
    for (;;) {
      const Serves whom = shared_.is_to_serve;
      shared_.serves = whom;
      if (whom == Serves::kEnd) return;
      if (whom == Serves::kLibrary) serve_by_library();
      if (whom == Serves::kEngine)
        for (Member& member : members_) step_engine(member);
      if (whom == Serves::kPlain)
        for (Member& member : members_) poll_plain(member);
      if (whom == Serves::kNobody) usleep(kRestUs);
    }
  }

 private:
  struct Member {
    SharedMember& note;
    std::unique_ptr<LibraryOwner> owner;
    std::unique_ptr<Engine> engine;  // none: nobody connects to it
    Plain plain;
    uint64_t group = 0;
    uint64_t barrier = 0;  // the ticket of the one that is under way
    bool is_plain_connected = false;
    bool is_at_plain_barrier = false;
    uint64_t plain_immediates = 0;
  };

  void grant(Member& member, size_t index) {
    std::optional<uint64_t> peer;
    while (!peer) {
      for (Member& each : members_) each.engine->step(now_ns());
      peer = member.engine->accept();
    }
    const uint64_t region = member.engine->add_region(memory_).value();
    const auto granted = member.engine->grant(region, *peer, 0, memory_.size()).value();
    member.note.descriptor.put(encode(granted.descriptor));
    if (!has_barriers_) return;
    if (!member.engine->counters().claim(kBarrierThere).ok()) _exit(1);
    member.group =
        member.engine->add_group({{*peer, 0, barrier_here(index), kBarrierThere}}).value();
  }

  /// Each engine has a thread of its own, so that waiting for one keeps nobody.
  void serve_by_library() {
    if (members_[0].note.barriers_over == shared_.barriers) return members_[0].owner->look();
    for (Member& member : members_) member.owner->begin_barrier();
    for (Member& member : members_) {
      member.owner->end_barrier();
      ++member.note.barriers_over;
    }
  }

  void step_engine(Member& member) {
    Engine& engine = *member.engine;
    if (member.barrier != 0 &&
        engine.state(member.barrier).value() != fabric::TicketState::kPending) {
      if (engine.state(member.barrier).value() != fabric::TicketState::kDone) _exit(1);
      engine.forget(member.barrier);
      member.barrier = 0;
      ++member.note.barriers_over;
    }
    if (member.barrier == 0 && member.note.barriers_over < shared_.barriers)
      member.barrier = engine.barrier(member.group, now_ns() + kLimitNs).value();
    engine.step(now_ns());
  }

  void poll_plain(Member& member) {
    member.plain_immediates += member.plain.poll();
    if (!has_barriers_) return;
    if (!member.is_plain_connected) {
      member.plain.read_from(memory_);
      member.plain.connect(shared_.plain_address.get(), shared_.plain_target);
      member.is_plain_connected = true;
    }
    if (!member.is_at_plain_barrier && member.note.barriers_over < shared_.barriers) {
      member.plain.signal(0);
      member.is_at_plain_barrier = true;
    }
    if (member.is_at_plain_barrier && member.plain_immediates > 0) {
      --member.plain_immediates;
      member.is_at_plain_barrier = false;
      ++member.note.barriers_over;
    }
  }

  Shared& shared_;
  const TargetMemory owned_;
  const std::span<std::byte> memory_;
  const bool has_barriers_;
  std::vector<Member> members_;
};

TargetProcess::TargetProcess(const TargetOptions& options, const Buffers& buffers) {
  void* shared =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) {
    std::perror("mmap");
    _exit(1);
  }
  shared_ = new (shared) Shared();  // owner: the mapping
  const bool is_group =
      options.pattern == Pattern::kScatter || options.pattern == Pattern::kBarrier;
  shared_->member_count = is_group ? kMembers : 1;
  shared_->is_to_serve = options.has_engine ? Serves::kEngine : Serves::kNobody;
  process_ = fork();
  if (process_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    Server(options, *shared_, buffers.map_target_again().value()).run();
    _exit(0);
  }
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

size_t TargetProcess::member_count() const { return shared_->member_count; }

TargetProcess::Member TargetProcess::member(size_t index) const {
  const SharedMember& note = shared_->members[index];
  return {note.fabric_address.get(), note.engine_address.get(), note.plain_address.get(),
          note.plain_target};
}

std::optional<fabric::Descriptor> TargetProcess::descriptor(size_t member) const {
  const auto& note = shared_->members[member].descriptor;
  if (note.size_bytes == 0) return std::nullopt;
  return fabric::decode_descriptor(note.get()).value();
}

void TargetProcess::set_plain(const std::vector<std::byte>& address, const Plain::Target& target) {
  shared_->plain_target = target;
  shared_->plain_address.put(address);
}

void TargetProcess::serve(Serves whom, uint64_t barriers) {
  shared_->is_to_serve = whom;
  while (shared_->serves != whom) sched_yield();
  shared_->barriers += barriers;
}

bool TargetProcess::are_barriers_over() const {
  for (size_t i = 0; i < shared_->member_count; ++i)
    if (shared_->members[i].barriers_over != shared_->barriers) return false;
  return true;
}

}  // namespace braid::bench
