// The wires that tests of GPU memory run on: the others, with a staged domain in front, between
// host memory and two GPUs of the emulated server in every way.
#include <unistd.h>

#include <chrono>

#include "fabric/gpu_memory.h"
#include "fabric/local/domain.h"
#include "fabric/shared_bytes.h"
#include "fabric/staged/domain.h"
#include "fabric/wires.h"
#include "support/server.h"

namespace braid::fabric::test {
namespace {

/// The driver, and a context on a GPU for each side.
class Server final : public braid::test::ServerTest {
 public:
  Server() { SetUp(); }
  void TestBody() override {}
  Gpu gpu(int number) const { return {driver(), number, context(number)}; }
};

/// Both sides are this process, as a process may not open its own allocations: plain memory is
/// named by its address then, and mapped memory is mapped a second time.
class LocalWire final : public Wire {
 public:
  enum class Target : uint8_t { kHost, kMapped, kPlain, kShared };
  LocalWire(bool from_gpu, Target target) : from_gpu_(from_gpu), target_(target) {}
  std::unique_ptr<Domain> open(int) override { return local::open_domain().value(); }
  void pass_time() override {
    if (++looks_ % 8 == 0) usleep(1);
  }
  uint64_t now_ns() override {
    return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  }
  std::unique_ptr<Memory> memory(int side, size_t size_bytes) override {
    if (side == 0 ? !from_gpu_ : target_ == Target::kHost) return Wire::memory(side, size_bytes);
    if (side == 1 && target_ == Target::kMapped)
      return std::make_unique<SharedHostBytes>(size_bytes);
    if (side == 1 && target_ == Target::kShared)
      return std::make_unique<SharedBytes>(server_.gpu(side), size_bytes);
    return std::make_unique<GpuBytes>(server_.gpu(side), size_bytes);
  }

 private:
  Server server_;
  bool from_gpu_;
  Target target_;
  uint64_t looks_ = 0;
};

void add_local_kinds(std::vector<WireKind>& kinds, bool only_to_gpu) {
  using Target = LocalWire::Target;
  struct Memories {
    const char* name;
    bool from_gpu;
    Target target;
  };
  for (const auto& [name, from_gpu, target] :
       {Memories{"local_gpu_to_plain", true, Target::kPlain},
        Memories{"local_gpu_to_shared", true, Target::kShared},
        Memories{"local_host_to_shared", false, Target::kShared},
        Memories{"local_gpu_to_mapped", true, Target::kMapped},
        Memories{"local_host_to_mapped", false, Target::kMapped},
        Memories{"local_gpu_to_host", true, Target::kHost},
        Memories{"local_host_to_host", false, Target::kHost}}) {
    if (only_to_gpu && target == Target::kHost) continue;
    kinds.push_back(
        {name, [from = from_gpu, to = target] { return std::make_unique<LocalWire>(from, to); }});
  }
}

class StagedWire final : public Wire {
 public:
  StagedWire(std::unique_ptr<Wire> wire, bool from_gpu, bool to_gpu)
      : wire_(std::move(wire)), is_gpu_{from_gpu, to_gpu} {}
  std::unique_ptr<Domain> open(int side) override {
    return staged::stage(wire_->open(side), {.secret = secret_}).value();
  }
  /// Copies take real time, in which nothing else need happen.
  void pass_time() override {
    wire_->pass_time();
    if (++looks_ % 8 == 0) usleep(1);
  }
  uint64_t now_ns() override { return wire_->now_ns(); }
  bool break_rail(int side, int index) override { return wire_->break_rail(side, index); }
  bool break_further_endpoints(int side, int index) override {
    return wire_->break_further_endpoints(side, index);
  }
  void mend_rail(int side, int index) override { wire_->mend_rail(side, index); }
  std::unique_ptr<Memory> memory(int side, size_t size_bytes) override {
    if (!is_gpu_[side]) return wire_->memory(side, size_bytes);
    return std::make_unique<GpuBytes>(server_.gpu(side), size_bytes);
  }

 private:
  Server server_;
  std::unique_ptr<Wire> wire_;
  bool is_gpu_[2];
  const Secret secret_ = Secret::of(some_bytes(32, 3)).value();
  uint64_t looks_ = 0;
};

std::vector<WireKind> make_kinds(bool only_to_gpu) {
  struct Memories {
    const char* name;
    bool from_gpu, to_gpu;
  };
  std::vector<WireKind> kinds, all = host_wire_kinds();
  all.insert(all.end(), threaded_wire_kinds().begin(), threaded_wire_kinds().end());
  for (const WireKind& kind : all)
    for (const auto& [name, from_gpu, to_gpu] :
         {Memories{"_gpu_to_gpu", true, true}, Memories{"_host_to_gpu", false, true},
          Memories{"_gpu_to_host", true, false}, Memories{"_host_to_host", false, false}}) {
      const bool is_only_between_gpus = kind.is_fake || kind.has_thread;
      if ((only_to_gpu && !to_gpu) || (is_only_between_gpus && !(from_gpu && to_gpu))) continue;
      kinds.push_back({kind.name + name,
                       [kind, from = from_gpu, to = to_gpu] {
                         return std::make_unique<StagedWire>(kind.make(), from, to);
                       },
                       false, kind.has_thread});
    }
  add_local_kinds(kinds, only_to_gpu);
  return kinds;
}

}  // namespace

std::unique_ptr<Memory> unshared_memory(size_t size_bytes) {
  static const Server server;
  return std::make_unique<SharedBytes>(server.gpu(1), size_bytes, false);
}

const std::vector<WireKind>& wire_kinds() {
  static const std::vector<WireKind> kinds = make_kinds(false);
  return kinds;
}

const std::vector<WireKind>& fencing_wire_kinds() {
  static const std::vector<WireKind> kinds = make_kinds(true);
  return kinds;
}

}  // namespace braid::fabric::test
