// Stream capture, as programs see it while they record: the state of streams, and how it ends. What
// they enqueue meanwhile is recorded by the scheduler; api/graph.cpp runs it.
#include <algorithm>

#include "emulator/api/entry.h"

namespace braid::emulator {
namespace {

bool is_mode(CUstreamCaptureMode mode) {
  return mode == CU_STREAM_CAPTURE_MODE_GLOBAL || mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL ||
         mode == CU_STREAM_CAPTURE_MODE_RELAXED;
}

CUresult begin(Call& call, CUstream handle, CUstreamCaptureMode mode) {
  if (!is_mode(mode)) return CUDA_ERROR_INVALID_VALUE;
  BRAID_LET(stream, find_stream(call, handle));
  if (stream->legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (stream->capture != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  auto capture = std::make_shared<Capture>();
  capture->id = call.world.next_id++;
  capture->mode = mode;
  capture->thread = call.thread.number;
  capture->origin = stream;
  capture->graph = std::make_shared<Graph>();
  capture->handle = call.world.graphs.add(capture->graph);
  stream->capture = capture;
  stream->recorded.clear();
  call.world.captures.push_back(std::move(capture));
  return CUDA_SUCCESS;
}

CUresult begin_global(Call& call, CUstream handle) {
  return begin(call, handle, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

void forget(World& world, const CapturePtr& capture) {
  capture->ended = true;
  for (const auto& [handle, context] : world.contexts.all())
    for (const StreamPtr& stream : context->streams)
      if (stream->capture == capture) {
        stream->capture = nullptr;
        stream->recorded.clear();
      }
  std::erase(world.captures, capture);
}

// Every node must lie before the end of the stream that the capture began in.
bool all_joined(const Graph& graph, const std::vector<size_t>& end) {
  std::vector<bool> before_end(graph.nodes.size(), false);
  for (const size_t node : end) before_end[node] = true;
  for (size_t node = graph.nodes.size(); node-- > 0;) {
    if (!before_end[node]) return false;
    for (const size_t earlier : graph.nodes[node]->after) before_end[earlier] = true;
  }
  return true;
}

// What is left of a capture that has ended with this error.
CUresult give_up(World& world, const Capture& capture, CUgraph* graph, CUresult error) {
  world.graphs.remove(capture.handle);
  *graph = nullptr;
  return error;
}

CUresult end(Call& call, CUstream handle, CUgraph* graph) {
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  BRAID_LET(stream, find_stream(call, handle));
  const CapturePtr capture = stream->capture;
  if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->origin.lock() != stream) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != call.thread.number)
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  const bool joined = all_joined(*capture->graph, stream->recorded);
  forget(call.world, capture);
  if (!capture->valid)
    return give_up(call.world, *capture, graph, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  if (!joined) return give_up(call.world, *capture, graph, CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  for (const GraphNodePtr& node : capture->graph->nodes)
    capture->graph->handles.push_back(call.world.graph_nodes.add(node));
  *graph = capture->handle;
  return CUDA_SUCCESS;
}

// The state of a stream. The legacy stream cannot be asked while a blocking stream is captured.
Found<StreamPtr> find_state(Call& call, CUstream handle, CUstreamCaptureStatus* status) {
  if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  BRAID_LET(stream, find_stream(call, handle));
  if (stream->legacy)
    for (const StreamPtr& other : stream->context.lock()->streams)
      if (other->blocking() && other->capture != nullptr) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  *status = stream->capture == nullptr ? CU_STREAM_CAPTURE_STATUS_NONE
            : stream->capture->valid   ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                       : CU_STREAM_CAPTURE_STATUS_INVALIDATED;
  return stream;
}

CUresult is_capturing(Call& call, CUstream handle, CUstreamCaptureStatus* status) {
  return find_state(call, handle, status).status();
}

CUresult get_info(Call& call, CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id) {
  BRAID_LET(stream, find_state(call, handle, status));
  if (id != nullptr && stream->capture != nullptr) *id = stream->capture->id;
  return CUDA_SUCCESS;
}

CUresult get_info_v2(Call& call, CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id,
                     CUgraph* graph, const CUgraphNode** dependencies, size_t* count) {
  BRAID_LET(stream, find_state(call, handle, status));
  BRAID_TRY(get_info(call, handle, status, id));
  if (graph != nullptr) *graph = stream->capture != nullptr ? stream->capture->handle : nullptr;
  if (dependencies != nullptr) *dependencies = nullptr;
  if (count != nullptr) *count = 0;
  return CUDA_SUCCESS;
}

CUresult get_info_v3(Call& call, CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id,
                     CUgraph* graph, const CUgraphNode** dependencies,
                     const CUgraphEdgeData** edges, size_t* count) {
  if (edges != nullptr) *edges = nullptr;
  return get_info_v2(call, handle, status, id, graph, dependencies, count);
}

CUresult exchange_mode(Call& call, CUstreamCaptureMode* mode) {
  if (mode == nullptr || !is_mode(*mode)) return CUDA_ERROR_INVALID_VALUE;
  std::swap(*mode, call.thread.capture_mode);
  return CUDA_SUCCESS;
}

}  // namespace

BRAID_ENTRY_STREAM(cuStreamBeginCapture, _ptsz, Cost::kNothing, 1, begin_global)
BRAID_ENTRY_STREAM(cuStreamBeginCapture_v2, _ptsz, Cost::kNothing, 2, begin)
BRAID_ENTRY_STREAM(cuStreamEndCapture, _ptsz, Cost::kNothing, 2, end)
BRAID_ENTRY_STREAM(cuStreamIsCapturing, _ptsz, Cost::kNothing, 2, is_capturing)
BRAID_ENTRY_STREAM(cuStreamGetCaptureInfo, _ptsz, Cost::kNothing, 3, get_info)
BRAID_ENTRY_STREAM(cuStreamGetCaptureInfo_v2, _ptsz, Cost::kNothing, 6, get_info_v2)
BRAID_ENTRY_STREAM(cuStreamGetCaptureInfo_v3, _ptsz, Cost::kNothing, 7, get_info_v3)
BRAID_ENTRY(cuThreadExchangeStreamCaptureMode, 1, exchange_mode)

}  // namespace braid::emulator
