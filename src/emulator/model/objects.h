// The objects of handles: contexts, streams, events, modules, functions. Plain data; the rules are
// in model/scheduler (order of work) and api/ (effects of each call). The world's lock covers all.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "cuda/kernels/twin.h"
#include "emulator/model/completion.h"
#include "emulator/model/time.h"

namespace braid::emulator {

struct Stream;
using StreamPtr = std::shared_ptr<Stream>;

struct Context {
  CUcontext handle = nullptr;
  uint64_t id = 0;  ///< new for every life of a primary context
  int device = 0;   ///< CUDA ordinal
  int gpu = 0;      ///< number in the server
  unsigned flags = 0;
  bool alive = false;
  bool locked = false;                    ///< a call holds its lock (model/context_lock.h)
  int primary_retains = 0;                ///< of a primary context
  int uses = 0;                           ///< of any other context: created, and attached to
  CUresult error = CUDA_SUCCESS;          ///< sticky: every later call returns it
  std::set<uint64_t> peers;               ///< ids of contexts whose memory kernels here may touch
  StreamPtr legacy;                       ///< the NULL stream
  std::map<uint64_t, StreamPtr> threads;  ///< per-thread default streams, by thread number
  std::vector<StreamPtr> streams;         ///< all of them, and destroyed ones with work left
  std::map<int, size_t> limits;           ///< cuCtxSetLimit, by CUlimit
  uint64_t taken_bytes = 0;               ///< of its GPU's memory, for itself
};
using ContextPtr = std::shared_ptr<Context>;

struct Op;
using OpPtr = std::shared_ptr<Op>;
/// Starts an op. A recorded one is started by every launch of its graph.
using Begin = std::function<void(const OpPtr&)>;

/// One piece of work in a stream. `begin` starts it when everything before it has ended; the code
/// that carries it out calls Scheduler::finish.
struct Op {
  Time issued = 0;  ///< when the program's call enqueued it
  std::vector<CompletionPtr> after;
  Begin begin;
  CompletionPtr end = std::make_shared<Completion>();
  std::weak_ptr<Stream> stream;
  int priority = 0;                 ///< of the stream
  std::function<void()> on_cancel;  ///< releases what the op holds, if anything
  bool cancelled = false;           ///< its context was poisoned or destroyed: move nothing more
};

/// One op of a graph, and the nodes that it comes after, by number.
struct GraphNode {
  Begin begin;
  std::vector<size_t> after;
  std::weak_ptr<Context> context;
  int priority = 0;
};
using GraphNodePtr = std::shared_ptr<GraphNode>;

/// Nodes come after only those before them. Does not change once it has been recorded.
struct Graph {
  std::vector<GraphNodePtr> nodes;
  std::vector<CUgraphNode> handles;  ///< of the nodes, in their order
};
using GraphPtr = std::shared_ptr<Graph>;

struct GraphExec {
  GraphPtr graph;  ///< lives on when the program destroys the graph
  unsigned long long flags = 0;
  CompletionPtr last;  ///< of the latest launch: launches of one executable do not overlap
};

/// A capture that is being recorded; shared by the streams that have joined it.
struct Capture {
  uint64_t id = 0;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  uint64_t thread = 0;  ///< that began it
  bool valid = true;
  bool ended = false;
  std::weak_ptr<Stream> origin;
  GraphPtr graph;
  CUgraph handle = nullptr;  ///< of the graph
};
using CapturePtr = std::shared_ptr<Capture>;

struct Stream {
  CUstream handle = nullptr;  ///< null for default streams
  uint64_t id = 0;
  std::weak_ptr<Context> context;
  unsigned flags = CU_STREAM_DEFAULT;
  int priority = 0;
  bool legacy = false;
  bool destroyed = false;
  CapturePtr capture;
  std::vector<size_t> recorded;  ///< nodes of the capture that the next op comes after

  std::deque<OpPtr> ops;
  bool running = false;  ///< the first op has begun
  bool armed = false;    ///< the first op will be looked at again
  bool pumping = false;
  CompletionPtr tail;  ///< the end of the op enqueued last; null: none ever

  /// True if it waits for the legacy stream, and the legacy stream for it.
  bool blocking() const { return (flags & CU_STREAM_NON_BLOCKING) == 0; }
  bool idle() const { return tail == nullptr || tail->done(); }
};

struct Event {
  std::weak_ptr<Context> context;
  unsigned flags = CU_EVENT_DEFAULT;
  CompletionPtr record;  ///< of the latest cuEventRecord; null: never recorded
  int device = 0;
  CapturePtr captured;           ///< the latest record was captured,
  std::vector<size_t> recorded;  ///< after these nodes
};
using EventPtr = std::shared_ptr<Event>;

struct Module {
  std::weak_ptr<Context> context;
  std::span<const cuda::Twin> twins;  ///< of its functions
};

struct Function {
  std::weak_ptr<Module> module;
  CUmodule module_handle = nullptr;
  std::weak_ptr<Context> context;
  const cuda::Twin* twin = nullptr;
  std::map<int, int> attributes;  ///< set by cuFuncSetAttribute
};

}  // namespace braid::emulator
