// An owner and a writer on a simulated network, with memory between them.
#pragma once

#include <algorithm>
#include <vector>

#include "fabric/small_net.h"

namespace braid::fabric::test {

/// Memory of the owner's that the writer may write, and as many ones to write.
struct Granting {
  Granting(SmallNet& its_net, SmallNet::Node& its_owner, SmallNet::Node& its_writer,
           size_t size_bytes)
      : net(its_net),
        owner(its_owner),
        writer(its_writer),
        peer(net.connect(owner, writer)),
        memory(size_bytes),
        source(size_bytes, std::byte{1}),
        region(owner.engine->add_region(memory).value()),
        granted(owner.engine->grant(region, peer, 0, size_bytes).value()),
        target(writer.engine->open_target(granted.descriptor).value()),
        from(writer.engine->add_region(source).value()) {}

  uint64_t write(uint64_t offset, uint64_t size_bytes) {
    return writer.engine
        ->write(from, target, {offset, offset, size_bytes}, {}, net.now_ns() + 60'000'000'000)
        .value();
  }
  int64_t landed() const { return std::count(memory.begin(), memory.end(), std::byte{1}); }
  Fence fence() const { return owner.engine->fence(granted.grant).value(); }

  SmallNet& net;
  SmallNet::Node &owner, &writer;
  uint64_t peer;
  std::vector<std::byte> memory, source;
  uint64_t region;
  Granted granted;
  uint64_t target, from;
};

}  // namespace braid::fabric::test
