// Launches of graphs. Nodes run as the GPU has room for them, not one stream after another, so each
// is put into a stream of its own, which lives as long as the node's work.
#include <utility>

#include "emulator/ops/ops.h"

namespace braid::emulator {
namespace {

StreamPtr stream_of_node(World& world, const GraphNode& node) {
  // Non-blocking: only the launching stream waits for the legacy stream.
  StreamPtr stream = world.make_stream(node.context.lock(), CU_STREAM_NON_BLOCKING, node.priority);
  stream->destroyed = true;  // the context forgets it when it is idle
  return stream;
}

}  // namespace

CompletionPtr enqueue_graph(World& world, const StreamPtr& stream, const Graph& graph,
                            CompletionPtr previous) {
  const auto finish = [&world](const OpPtr& op) { world.scheduler.finish(op); };
  std::vector<CompletionPtr> before;
  if (previous != nullptr) before.push_back(std::move(previous));
  const CompletionPtr begin = world.scheduler.enqueue(stream, finish, std::move(before));
  std::vector<CompletionPtr> ends;
  for (const GraphNodePtr& node : graph.nodes) {
    std::vector<CompletionPtr> after{begin};
    for (const size_t earlier : node->after) after.push_back(ends[earlier]);
    ends.push_back(
        world.scheduler.enqueue(stream_of_node(world, *node), node->begin, std::move(after)));
  }
  return world.scheduler.enqueue(stream, finish, std::move(ends));
}

}  // namespace braid::emulator
