#include "stress/execution.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <vector>

#include "stress/copy_calls.h"
#include "stress/kernel.h"
#include "stress/stock.h"
#include "stress/workers.h"

namespace braid::stress {
namespace {

/// What one thread has met.
struct Notes {
  std::string errors;
  std::string disorder;

  void add(size_t thread, size_t step, int64_t code) {
    if (code == CUDA_SUCCESS) return;
    errors += (errors.empty() ? "" : ",") + std::to_string(thread) + "." + std::to_string(step) +
              ":" + std::to_string(code);
  }
  void out_of_order(const std::string& what) {
    if (disorder.empty()) disorder = what;
  }
};

// Which entry a batch blames is part of its answer.
int64_t blaming(CUresult result, size_t entry) {
  constexpr int64_t kEntries = 1000;
  if (result == CUDA_SUCCESS || entry == SIZE_MAX) return result;
  return result * kEntries + static_cast<int64_t>(entry % kEntries);
}

// It runs no exit handlers: the driver's own crash in such a child (2xH200, driver 580.159,
// natively).
[[noreturn]] void be_child(ForkEnd end) {
  if (end == ForkEnd::kExecute) execl("/bin/true", "true", nullptr);
  _exit(end == ForkEnd::kExecute ? 127 : 0);
}

// How the child ended, as an error to note: the copies that are under way are none of its business.
int64_t fork_child(ForkEnd end) {
  const pid_t child = fork();
  if (child == 0) be_child(end);
  int status = -1;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  return status;
}

class Execution {
 public:
  Execution(Server& server, Workers& workers, const Program& program)
      : stock_(server, program),
        server_(server),
        calls_(server.calls),
        workers_(workers),
        program_(program),
        meeting_(program.threads) {}

  std::string run() {
    if (server_.traces) trace_start();
    stock_.make();
    notes_.resize(program_.threads);
    workers_.run(program_.threads, [this](size_t thread) { run_thread(thread); });
    return result();
  }

 private:
  void trace_start() const;
  void run_thread(size_t thread);
  void check_thread(Notes& notes, int gpu);
  int64_t step(size_t thread, const Operation& operation, size_t number);
  int64_t copy(const Operation& operation);
  CUresult fill(const Operation& operation);
  CUresult check_order(const Operation& operation, Notes& notes);
  CUresult check_held(const Operation& operation, Notes& notes);
  CUresult release(const Operation& operation);
  CUresult renew(const Operation& operation);
  CUresult renew_in_stream(const Operation& operation);
  CUresult capture(size_t thread, const Operation& operation, size_t number);
  int64_t mistake(const Operation& operation);
  CUresult call_host(const Operation& operation);
  CUresult launch(const Operation& operation);
  std::string result();

  CUstream stream(int number) const { return stock_.stream(number); }
  CUevent event(int number) const { return stock_.event(number); }
  Stock stock_;
  Server& server_;
  const Calls& calls_;
  Workers& workers_;
  const Program& program_;
  std::barrier<> meeting_;
  std::vector<Notes> notes_;
  std::mutex graphs_lock_;
  std::vector<CUgraphExec> graphs_;
};

void Execution::trace_start() const {
  for (size_t region = 0; region < program_.regions.size(); ++region)
    std::fprintf(stderr, "region %zu: %s\n", region, describe(program_.regions[region]).c_str());
  for (size_t number = 0; number < program_.streams.size(); ++number)
    std::fprintf(stderr, "stream %zu: %s\n", number, describe(program_.streams[number]).c_str());
}

void Execution::run_thread(size_t thread) {
  size_t number = 0;
  for (const auto& phase : program_.phases) {
    for (const Operation& operation : phase[thread]) {
      if (operation.stream >= 0) server_.use(program_.streams[operation.stream].gpu);
      notes_[thread].add(thread, number, step(thread, operation, number));
      if (operation.stream >= 0)
        check_thread(notes_[thread], program_.streams[operation.stream].gpu);
      ++number;
    }
    meeting_.arrive_and_wait();
  }
  // Threads' own streams can only be waited for by their thread, or with their context.
  for (int gpu = 0; gpu < program_.machine.gpus; ++gpu) {
    server_.use(gpu);
    notes_[thread].add(thread, number, calls_.sync_context());
  }
}

// What a call leaves behind in its thread.
void Execution::check_thread(Notes& notes, int gpu) {
  CUcontext current = nullptr;
  must(calls_.get_current(&current), "cuCtxGetCurrent");
  if (current != server_.contexts[gpu]) notes.out_of_order("another context is current");
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  must(calls_.exchange_mode(&mode), "asking for the capture mode");
  if (mode != CU_STREAM_CAPTURE_MODE_GLOBAL) notes.out_of_order("the capture mode is another");
}

int64_t Execution::step(size_t thread, const Operation& operation, size_t number) {
  if (server_.traces)
    std::fprintf(stderr, "%zu.%zu %s\n", thread, number, describe(operation).c_str());
  const CUstream in = operation.stream >= 0 ? stream(operation.stream) : nullptr;
  const CUevent marker = operation.event >= 0 ? event(operation.event) : nullptr;
  switch (operation.step) {
    case Step::kCopy: return copy(operation);
    case Step::kFill: return fill(operation);
    case Step::kRecord: return calls_.record(marker, in);
    case Step::kWait: return calls_.wait(in, marker, 0);
    case Step::kSyncEvent: {
      const CUresult result = calls_.sync_event(marker);
      return result == CUDA_SUCCESS ? calls_.query_event(marker) : result;
    }
    // Another thread may have put more into a legacy stream, so it is not asked afterwards.
    case Step::kSyncStream: return calls_.sync_stream(in);
    case Step::kSyncContext: return calls_.sync_context();
    case Step::kCheckOrder: return check_order(operation, notes_[thread]);
    case Step::kHostFunction: return call_host(operation);
    case Step::kTouch: stock_.place(operation.region).change(); return CUDA_SUCCESS;
    case Step::kHold:
      return calls_.wait_value(in, reinterpret_cast<CUdeviceptr>(stock_.word(operation.event)), 1,
                               CU_STREAM_WAIT_VALUE_GEQ);
    case Step::kCheckHeld: return check_held(operation, notes_[thread]);
    case Step::kRelease: return release(operation);
    case Step::kRenew: return renew(operation);
    case Step::kRenewInStream: return renew_in_stream(operation);
    case Step::kRenewStream: return stock_.renew_stream(operation.stream);
    case Step::kCapture: return capture(thread, operation, number);
    case Step::kMistake: return mistake(operation);
    case Step::kKernel: return launch(operation);
    case Step::kFork: return fork_child(static_cast<ForkEnd>(operation.value));
    case Step::kReset: return stock_.reset(static_cast<int>(operation.value));
  }
  return CUDA_ERROR_UNKNOWN;
}

int64_t Execution::copy(const Operation& operation) {
  size_t fail_index = SIZE_MAX;
  const CUresult result = make_copy(
      calls_, operation.copy, stream(operation.stream),
      [this](int region) { return stock_.place(region).memory.address(); }, fail_index);
  return blaming(result, fail_index);
}

CUresult Execution::fill(const Operation& operation) {
  const Piece& piece = operation.copy.pieces.front();
  CUdeviceptr at = stock_.place(operation.region).memory.address() + piece.to_offset;
  const bool is_wide = (operation.value & 1) != 0;
  if (!is_wide)
    return calls_.fill_bytes(at, static_cast<uint8_t>(operation.value >> 8), piece.size_bytes,
                             stream(operation.stream));
  at &= ~CUdeviceptr{3};  // regions begin at a multiple
  return calls_.fill_words(at, static_cast<unsigned>(operation.value >> 8), piece.size_bytes / 4,
                           stream(operation.stream));
}

CUresult Execution::call_host(const Operation& operation) {
  return calls_.call_host(
      stream(operation.stream), [](void* place) { static_cast<Place*>(place)->change(); },
      &stock_.place(operation.region));
}

CUresult Execution::launch(const Operation& operation) {
  const Piece& piece = operation.copy.pieces.front();
  MixArgs args{stock_.place(piece.to).memory.address() + piece.to_offset,
               stock_.place(piece.from).memory.address() + piece.from_offset, piece.size_bytes};
  void* parameters[] = {&args};
  const int gpu = program_.streams[operation.stream].gpu;
  return calls_.launch(server_.kernels[gpu], 1, 1, 1, 32, 1, 1, 0, stream(operation.stream),
                       parameters, nullptr);
}

// The later event is asked first: once it has passed, so has the earlier.
CUresult Execution::check_order(const Operation& operation, Notes& notes) {
  const CUevent before = event(operation.event);
  const CUevent after = event(operation.other_event);
  const CUresult later = calls_.query_event(after);
  const CUresult earlier = calls_.query_event(before);
  if (later == CUDA_SUCCESS && earlier != CUDA_SUCCESS)
    notes.out_of_order("an event before its stream's earlier one");
  if (operation.value == 0) return CUDA_SUCCESS;
  float elapsed_ms = -1;
  const CUresult result = calls_.elapsed(&elapsed_ms, before, after);
  if (result == CUDA_SUCCESS && elapsed_ms < 0) notes.out_of_order("time ran backwards");
  return result;
}

CUresult Execution::check_held(const Operation& operation, Notes& notes) {
  if (operation.region >= 0) stock_.place(operation.region).note();
  const CUresult result = calls_.record(event(operation.event), stream(operation.stream));
  if (result != CUDA_SUCCESS) return result;
  if (calls_.query_event(event(operation.event)) != CUDA_ERROR_NOT_READY)
    notes.out_of_order("an event passed in a stream that is held");
  if (calls_.query_stream(stream(operation.stream)) != CUDA_ERROR_NOT_READY)
    notes.out_of_order("a stream that is held has nothing left");
  return CUDA_SUCCESS;
}

CUresult Execution::release(const Operation& operation) {
  uint32_t* word = stock_.word(operation.event);
  if (operation.value == 0) {
    std::atomic_ref(*word).store(1);
    return CUDA_SUCCESS;
  }
  return calls_.write_value(stream(operation.stream), reinterpret_cast<CUdeviceptr>(word), 1, 0);
}

CUresult Execution::renew(const Operation& operation) {
  Memory& memory = stock_.place(operation.region).memory;
  server_.use(program_.regions[operation.region].gpu);
  CUresult result = memory.free();
  if (result == CUDA_SUCCESS) result = memory.allocate();
  return result == CUDA_SUCCESS ? memory.fill(operation.value) : result;
}

CUresult Execution::renew_in_stream(const Operation& operation) {
  Memory& memory = stock_.place(operation.region).memory;
  CUresult result = memory.free_in(stream(operation.stream));
  if (result == CUDA_SUCCESS) result = memory.allocate_in(stream(operation.stream));
  if (result != CUDA_SUCCESS) return result;
  return calls_.fill_bytes(memory.address(), static_cast<uint8_t>(operation.value),
                           program_.regions[operation.region].size_bytes, stream(operation.stream));
}

CUresult Execution::capture(size_t thread, const Operation& operation, size_t number) {
  const CUstream in = stream(operation.stream);
  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  CUresult result = calls_.begin_capture(in, operation.mode);
  for (const Operation& inner : operation.inner)
    notes_[thread].add(thread, number, step(thread, inner, number));
  if (result == CUDA_SUCCESS) result = calls_.end_capture(in, &graph);
  if (result == CUDA_SUCCESS) result = calls_.instantiate(&executable, graph, 0);
  for (uint64_t launch = 0; launch < operation.value && result == CUDA_SUCCESS; ++launch)
    result = calls_.launch_graph(executable, in);
  if (graph != nullptr) must(calls_.destroy_graph(graph), "destroying a graph");
  const std::lock_guard lock(graphs_lock_);
  if (executable != nullptr) graphs_.push_back(executable);
  return result;
}

int64_t Execution::mistake(const Operation& operation) {
  size_t fail_index = SIZE_MAX;
  const CUresult result = make_mistake(calls_, static_cast<Mistake>(operation.value),
                                       stream(operation.stream), stock_.victim(), fail_index);
  return blaming(result, fail_index);
}

std::string Execution::result() {
  const uint64_t memory = stock_.hash_memory();
  const uint64_t seen = stock_.hash_seen();
  std::string errors;
  std::string disorder;
  for (const Notes& notes : notes_) {
    errors += (errors.empty() || notes.errors.empty() ? "" : ",") + notes.errors;
    if (disorder.empty()) disorder = notes.disorder;
  }
  for (const CUgraphExec graph : graphs_) must(calls_.destroy_executable(graph), "a graph");
  stock_.end();
  char start[128];
  std::snprintf(start, sizeof start, "%llu memory=%016llx notes=%016llx",
                static_cast<unsigned long long>(program_.seed),
                static_cast<unsigned long long>(memory), static_cast<unsigned long long>(seen));
  return std::string(start) + " errors=" + (errors.empty() ? "none" : errors) +
         " order=" + (disorder.empty() ? "ok" : disorder);
}

}  // namespace

class Runner::Impl {
 public:
  Impl(const Calls& calls, int gpus, bool traces) : server{calls, traces} {
    must(calls.init(0), "cuInit");
    server.contexts.resize(gpus);
    server.kernels.resize(gpus);
    for (int gpu = 0; gpu < gpus; ++gpu) must(server.open(gpu), "a context");
  }

  Server server;
  Workers workers;
};

Runner::Runner(const Calls& calls, int gpus, bool traces)
    : impl_(std::make_unique<Impl>(calls, gpus, traces)) {}
Runner::~Runner() = default;

std::string Runner::run(const Program& program) {
  return Execution(impl_->server, impl_->workers, program).run();
}

}  // namespace braid::stress
