// The wires that tests of host memory run on.
#include "fabric/wires.h"

namespace braid::fabric::test {

const std::vector<WireKind>& wire_kinds() { return host_wire_kinds(); }

const std::vector<WireKind>& fencing_wire_kinds() {
  static const std::vector<WireKind> kinds = {host_wire_kinds().front()};
  return kinds;
}

}  // namespace braid::fabric::test
