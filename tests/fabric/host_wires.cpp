// The wires that tests of host memory run on.
#include <unistd.h>

#include <chrono>

#include "fabric/local/domain.h"
#include "fabric/shared_bytes.h"
#include "fabric/wires.h"

namespace braid::fabric::test {
namespace {

/// Processes of one host, whose targets are mapped.
class MappedWire final : public Wire {
 public:
  std::unique_ptr<Domain> open(int) override { return local::open_domain().value(); }
  void pass_time() override {}
  uint64_t now_ns() override {
    return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  }
  std::unique_ptr<Memory> memory(int side, size_t size_bytes) override {
    if (side == 0) return Wire::memory(side, size_bytes);
    return std::make_unique<SharedHostBytes>(size_bytes);
  }
};

const WireKind& mapped_kind() {
  static const WireKind kind{"local_mapped", [] { return std::make_unique<MappedWire>(); }};
  return kind;
}

}  // namespace

const std::vector<WireKind>& wire_kinds() {
  static const std::vector<WireKind> kinds = [] {
    std::vector<WireKind> all = host_wire_kinds();
    all.push_back(mapped_kind());
    return all;
  }();
  return kinds;
}

const std::vector<WireKind>& fencing_wire_kinds() {
  static const std::vector<WireKind> kinds = {host_wire_kinds().front(), mapped_kind()};
  return kinds;
}

}  // namespace braid::fabric::test
