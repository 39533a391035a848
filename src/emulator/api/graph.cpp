// Graphs that were captured: what they hold, executables made of them, launches. Graphs cannot be
// built or changed node by node.
#include <algorithm>

#include "emulator/api/entry.h"
#include "emulator/ops/ops.h"

namespace braid::emulator {
namespace {

using Flags = unsigned long long;

CUresult instantiate(Call& call, CUgraphExec* out, CUgraph handle, Flags flags) {
  constexpr Flags kKnown =
      CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
      CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
  if (out == nullptr || (flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  const GraphPtr graph = call.world.graphs.find(handle);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto exec = std::make_shared<GraphExec>();
  exec->graph = graph;
  exec->flags = flags;
  *out = call.world.graph_execs.add(std::move(exec));
  return CUDA_SUCCESS;
}

// The first forms also say which node was at fault, and why.
CUresult instantiate_with_log(Call& call, CUgraphExec* out, CUgraph graph, CUgraphNode* error_node,
                              char* log, size_t log_bytes) {
  if (error_node != nullptr) *error_node = nullptr;
  if (log != nullptr && log_bytes > 0) *log = '\0';
  return instantiate(call, out, graph, 0);
}

CUresult instantiate_with_params(Call& call, CUgraphExec* out, CUgraph graph,
                                 CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  params->hErrNode_out = nullptr;
  const CUresult result = instantiate(call, out, graph, params->flags);
  params->result_out =
      result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
  return result;
}

CUresult get_flags(Call& call, CUgraphExec handle, cuuint64_t* flags) {
  const auto exec = call.world.graph_execs.find(handle);
  if (flags == nullptr || exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = exec->flags;
  return CUDA_SUCCESS;
}

CUresult launch(Call& call, CUgraphExec handle, CUstream stream_handle) {
  const auto exec = call.world.graph_execs.find(handle);
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  BRAID_LET(stream, find_stream(call, stream_handle));
  BRAID_TRY(check_capture(stream));
  if (stream->capture != nullptr) return CUDA_ERROR_NOT_SUPPORTED;  // a graph in a graph
  for (const GraphNodePtr& node : exec->graph->nodes) {
    const ContextPtr context = node->context.lock();
    if (context == nullptr || !context->alive) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    Scheduler::prune(*context);
  }
  exec->last = enqueue_graph(call.world, stream, *exec->graph, exec->last);
  return CUDA_SUCCESS;
}

// There is nothing to upload; the arguments are looked at.
CUresult upload(Call& call, CUgraphExec handle, CUstream stream_handle) {
  if (call.world.graph_execs.find(handle) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  BRAID_LET(stream, find_stream(call, stream_handle));
  return stream->capture != nullptr ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

// With `nodes`, writes `*count` of them, null where there are no more; without, says how many.
CUresult get_nodes(Call& call, CUgraph handle, CUgraphNode* nodes, size_t* count) {
  const GraphPtr graph = call.world.graphs.find(handle);
  if (graph == nullptr || count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::vector<CUgraphNode>& handles = graph->handles;
  if (nodes != nullptr) {
    const size_t given = std::min(*count, handles.size());
    std::copy_n(handles.begin(), given, nodes);
    std::fill(nodes + given, nodes + *count, nullptr);
  }
  *count = nodes == nullptr ? handles.size() : std::min(*count, handles.size());
  return CUDA_SUCCESS;
}

CUresult destroy_graph(Call& call, CUgraph handle) {
  const GraphPtr graph = call.world.graphs.find(handle);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (const CUgraphNode node : graph->handles) call.world.graph_nodes.remove(node);
  call.world.graphs.remove(handle);
  return CUDA_SUCCESS;
}

// Launches that have been enqueued go on.
CUresult destroy_exec(Call& call, CUgraphExec handle) {
  if (call.world.graph_execs.find(handle) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  call.world.graph_execs.remove(handle);
  return CUDA_SUCCESS;
}

}  // namespace

BRAID_ENTRY_V2(cuGraphInstantiate, 5, instantiate_with_log)
BRAID_ENTRY(cuGraphInstantiateWithFlags, 3, instantiate)
BRAID_ENTRY_STREAM(cuGraphInstantiateWithParams, _ptsz, Cost::kNothing, 3, instantiate_with_params)
BRAID_ENTRY(cuGraphExecGetFlags, 2, get_flags)
BRAID_ENTRY_STREAM(cuGraphUpload, _ptsz, Cost::kNothing, 2, upload)
BRAID_ENTRY_STREAM(cuGraphLaunch, _ptsz, Cost::kEnqueue, 2, launch)
BRAID_ENTRY(cuGraphGetNodes, 3, get_nodes)
BRAID_ENTRY(cuGraphExecDestroy, 1, destroy_exec)
BRAID_ENTRY(cuGraphDestroy, 1, destroy_graph)

}  // namespace braid::emulator
