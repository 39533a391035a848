// Wires whose target's end lies in another process, as it does for every user.
#include <unistd.h>

#include <chrono>

#include "fabric/places.h"
#include "fabric/process_rail.h"
#include "fabric/remote_domain.h"
#include "fabric/wires.h"
#include "support/server.h"

namespace braid::fabric::test {
namespace {

constexpr std::string_view kLocal = "local";

struct Means {
  const char* name;
  std::string_view provider;  // as open_process_rail names it
  Place from, to;
};

class ProcessWire final : public Wire {
 public:
  explicit ProcessWire(const Means& means) : means_(means) {}
  ~ProcessWire() override {
    try {
      target_->ask(Call::kFreeAll);
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
  }
  std::unique_ptr<Domain> open(int side) override {
    const std::string provider(means_.provider);
    if (side == 1) return open_remote_domain(target_, provider);
    return open_process_rail(provider).value();
  }
  void pass_time() override {
    if (++looks_ % 8 == 0) usleep(1);
  }
  uint64_t now_ns() override {
    return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  }
  std::unique_ptr<Memory> memory(int side, size_t size_bytes) override {
    return memory_of(side, side == 0 ? means_.from : means_.to, size_bytes);
  }
  std::unique_ptr<Memory> host_memory(int side, size_t size_bytes) override {
    return memory_of(side, Place::kHost, size_bytes);
  }

 private:
  std::unique_ptr<Memory> memory_of(int side, Place place, size_t size_bytes) {
    if (side == 1) return remote_memory(target_, place, size_bytes);
    return memory_at(place, side, size_bytes);
  }

  const Means means_;
  const std::shared_ptr<OtherProcess> target_ = OtherProcess::get();
  uint64_t looks_ = 0;
};

void waive(const std::string& why) { GTEST_SKIP() << "waived: " << why; }

/// Null where there is no GPU; the test is skipped then.
std::unique_ptr<Wire> make_wire(const Means& means) {
  const bool needs_gpu = is_on_gpu(means.from) || is_on_gpu(means.to);
  const std::string why = needs_gpu ? why_no_gpu() : "";
  if (why.empty()) return std::make_unique<ProcessWire>(means);
  if (braid::test::server_is_emulated()) throw std::runtime_error(why);
  waive(why);
  return nullptr;
}

/// On the emulated server no process can open another one's memory of cuMemAlloc.
bool exists_here(const Means& means) {
  const bool needs_ipc = means.provider == kLocal && means.to == Place::kPlain;
  return !needs_ipc || !braid::test::server_is_emulated();
}

std::vector<WireKind> make_kinds(bool only_fencing) {
  constexpr Means kAll[] = {
      {"process_local_gpu_to_plain", kLocal, Place::kPlain, Place::kPlain},
      {"process_local_gpu_to_shared", kLocal, Place::kPlain, Place::kShared},
      {"process_local_host_to_plain", kLocal, Place::kHost, Place::kPlain},
      {"process_local_host_to_shared", kLocal, Place::kHost, Place::kShared},
      {"process_local_gpu_to_mapped", kLocal, Place::kPlain, Place::kMapped},
      {"process_local_host_to_mapped", kLocal, Place::kHost, Place::kMapped},
      {"process_local_gpu_to_host", kLocal, Place::kPlain, Place::kHost},
      {"process_local_host_to_host", kLocal, Place::kHost, Place::kHost},
      {"process_staged_shm_gpu_to_gpu", "shm+gpu", Place::kPlain, Place::kPlain},
      {"process_staged_tcp_gpu_to_gpu", "tcp;ofi_rxm+gpu", Place::kPlain, Place::kPlain},
  };
  std::vector<WireKind> kinds;
  for (const Means& means : kAll) {
    if (!exists_here(means) || (only_fencing && means.to == Place::kHost)) continue;
    kinds.push_back({means.name, [means] { return make_wire(means); }});
  }
  return kinds;
}

}  // namespace

const std::vector<WireKind>& wire_kinds() {
  static const std::vector<WireKind> kinds = make_kinds(false);
  return kinds;
}

const std::vector<WireKind>& fencing_wire_kinds() {
  static const std::vector<WireKind> kinds = make_kinds(true);
  return kinds;
}

const std::vector<WireKind>& threaded_wire_kinds() {
  static const std::vector<WireKind> kinds;
  return kinds;
}

}  // namespace braid::fabric::test
