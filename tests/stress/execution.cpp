#include "stress/execution.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstdio>
#include <deque>
#include <mutex>
#include <vector>

#include "stress/copy_calls.h"
#include "stress/memory.h"
#include "stress/workers.h"

namespace braid::stress {
namespace {

constexpr uint64_t kVictimBytes = 16 << 10;

/// What threads of programs share, whatever the program.
struct Server {
  const Calls& calls;
  bool traces;
  std::vector<CUcontext> contexts{};

  void use(int gpu) const { must(calls.set_current(contexts[gpu]), "cuCtxSetCurrent"); }
  CUresult reset(int gpu) {
    CUdevice device = 0;
    CUresult result = calls.get_device(&device, gpu);
    if (result == CUDA_SUCCESS) result = calls.reset_primary(device);
    if (result == CUDA_SUCCESS) result = calls.retain_primary(&contexts[gpu], device);
    return result;
  }
};

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

/// A region, and what has been seen of it. One thread or host function at a time.
struct Place {
  Memory memory;
  uint64_t size_bytes;
  uint64_t seen = 0;

  void note() { seen = mix(seen, hash_bytes(memory.host(), size_bytes)); }
  void change() {
    note();
    for (uint64_t at = 0; at < size_bytes; at += 61) memory.host()[at] += 1;
  }
};

// Which entry a batch blames is part of its answer.
int64_t blaming(CUresult result, size_t entry) {
  constexpr int64_t kEntries = 1000;
  if (result == CUDA_SUCCESS || entry == SIZE_MAX) return result;
  return result * kEntries + static_cast<int64_t>(entry % kEntries);
}

class Execution {
 public:
  Execution(Server& server, Workers& workers, const Program& program)
      : server_(server),
        calls_(server.calls),
        workers_(workers),
        program_(program),
        meeting_(program.threads) {}

  std::string run() {
    if (server_.traces) trace_start();
    set_up();
    notes_.resize(program_.threads);
    workers_.run(program_.threads, [this](size_t thread) { run_thread(thread); });
    return result();
  }

 private:
  void trace_start() const;
  void set_up();
  void set_up_words();
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
  CUresult create_stream(int stream);
  CUresult renew_stream(int stream);
  CUresult capture(size_t thread, const Operation& operation, size_t number);
  int64_t mistake(const Operation& operation);
  CUresult reset(int gpu);
  CUresult call_host(const Operation& operation);
  std::string result();
  uint64_t hash_memory();
  void tear_down();

  CUstream stream(int number) const { return streams_[number]; }
  Server& server_;
  const Calls& calls_;
  Workers& workers_;
  const Program& program_;
  std::barrier<> meeting_;
  std::deque<Place> places_;
  std::vector<CUstream> streams_;
  std::vector<CUevent> events_;
  std::vector<Notes> notes_;
  uint32_t* words_ = nullptr;  // that streams are held by, by event
  Victim victim_{};
  std::mutex graphs_lock_;
  std::vector<CUgraphExec> graphs_;
};

void Execution::trace_start() const {
  for (size_t region = 0; region < program_.regions.size(); ++region)
    std::fprintf(stderr, "region %zu: %s\n", region, describe(program_.regions[region]).c_str());
  for (size_t number = 0; number < program_.streams.size(); ++number)
    std::fprintf(stderr, "stream %zu: %s\n", number, describe(program_.streams[number]).c_str());
}

void Execution::set_up() {
  set_up_words();
  for (size_t region = 0; region < program_.regions.size(); ++region) {
    const Region& of = program_.regions[region];
    server_.use(of.gpu);
    Place& place = places_.emplace_back(Place{Memory(calls_, of), of.size_bytes});
    must(place.memory.allocate(), "allocating");
    must(place.memory.fill(program_.seed * 64 + region), "filling");
  }
  streams_.resize(program_.streams.size());
  for (size_t number = 0; number < streams_.size(); ++number)
    must(create_stream(static_cast<int>(number)), "creating a stream");
  for (const int gpu : program_.event_gpus) {
    server_.use(gpu);
    must(calls_.create_event(&events_.emplace_back(), CU_EVENT_DEFAULT), "creating an event");
  }
}

void Execution::set_up_words() {
  server_.use(0);
  void* words = nullptr;
  must(calls_.pin(&words, (program_.event_gpus.size() + 1) * sizeof(uint32_t),
                  CU_MEMHOSTALLOC_PORTABLE),
       "words");
  words_ = static_cast<uint32_t*>(words);
  std::fill_n(words_, program_.event_gpus.size(), 0);
  void* victim = nullptr;
  must(calls_.pin(&victim, kVictimBytes, CU_MEMHOSTALLOC_PORTABLE), "a victim");
  victim_ = {0, static_cast<uint8_t*>(victim), kVictimBytes};
  must(calls_.allocate(&victim_.device, kVictimBytes), "a victim");
}

CUresult Execution::create_stream(int number) {
  const Stream& of = program_.streams[number];
  streams_[number] = of.flavour == Flavour::kLegacy ? CU_STREAM_LEGACY : CU_STREAM_PER_THREAD;
  if (of.is_default()) return CUDA_SUCCESS;
  server_.use(of.gpu);
  const unsigned flags =
      of.flavour == Flavour::kBlocking ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING;
  return calls_.create_stream(&streams_[number], flags, of.flavour == Flavour::kUrgent ? -3 : 0);
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
  for (int gpu = 0; gpu < kGpus; ++gpu) {
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
  const CUevent event = operation.event >= 0 ? events_[operation.event] : nullptr;
  switch (operation.step) {
    case Step::kCopy: return copy(operation);
    case Step::kFill: return fill(operation);
    case Step::kRecord: return calls_.record(event, in);
    case Step::kWait: return calls_.wait(in, event, 0);
    case Step::kSyncEvent: {
      const CUresult result = calls_.sync_event(event);
      return result == CUDA_SUCCESS ? calls_.query_event(event) : result;
    }
    // Another thread may have put more into a legacy stream, so it is not asked afterwards.
    case Step::kSyncStream: return calls_.sync_stream(in);
    case Step::kSyncContext: return calls_.sync_context();
    case Step::kCheckOrder: return check_order(operation, notes_[thread]);
    case Step::kHostFunction: return call_host(operation);
    case Step::kTouch: places_[operation.region].change(); return CUDA_SUCCESS;
    case Step::kHold:
      return calls_.wait_value(in, reinterpret_cast<CUdeviceptr>(words_ + operation.event), 1,
                               CU_STREAM_WAIT_VALUE_GEQ);
    case Step::kCheckHeld: return check_held(operation, notes_[thread]);
    case Step::kRelease: return release(operation);
    case Step::kRenew: return renew(operation);
    case Step::kRenewInStream: return renew_in_stream(operation);
    case Step::kRenewStream: return renew_stream(operation.stream);
    case Step::kCapture: return capture(thread, operation, number);
    case Step::kMistake: return mistake(operation);
    case Step::kReset: return reset(static_cast<int>(operation.value));
  }
  return CUDA_ERROR_UNKNOWN;
}

int64_t Execution::copy(const Operation& operation) {
  size_t fail_index = SIZE_MAX;
  const CUresult result = make_copy(
      calls_, operation.copy, stream(operation.stream),
      [this](int region) { return places_[region].memory.address(); }, fail_index);
  return blaming(result, fail_index);
}

CUresult Execution::fill(const Operation& operation) {
  const Piece& piece = operation.copy.pieces.front();
  CUdeviceptr at = places_[operation.region].memory.address() + piece.to_offset;
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
      &places_[operation.region]);
}

// The later event is asked first: once it has passed, so has the earlier.
CUresult Execution::check_order(const Operation& operation, Notes& notes) {
  const CUevent before = events_[operation.event];
  const CUevent after = events_[operation.other_event];
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
  if (operation.region >= 0) places_[operation.region].note();
  const CUresult result = calls_.record(events_[operation.event], stream(operation.stream));
  if (result != CUDA_SUCCESS) return result;
  if (calls_.query_event(events_[operation.event]) != CUDA_ERROR_NOT_READY)
    notes.out_of_order("an event passed in a stream that is held");
  if (calls_.query_stream(stream(operation.stream)) != CUDA_ERROR_NOT_READY)
    notes.out_of_order("a stream that is held has nothing left");
  return CUDA_SUCCESS;
}

CUresult Execution::release(const Operation& operation) {
  uint32_t* word = words_ + operation.event;
  if (operation.value == 0) {
    std::atomic_ref(*word).store(1);
    return CUDA_SUCCESS;
  }
  return calls_.write_value(stream(operation.stream), reinterpret_cast<CUdeviceptr>(word), 1, 0);
}

CUresult Execution::renew(const Operation& operation) {
  Memory& memory = places_[operation.region].memory;
  server_.use(program_.regions[operation.region].gpu);
  CUresult result = memory.free();
  if (result == CUDA_SUCCESS) result = memory.allocate();
  return result == CUDA_SUCCESS ? memory.fill(operation.value) : result;
}

CUresult Execution::renew_in_stream(const Operation& operation) {
  Memory& memory = places_[operation.region].memory;
  CUresult result = memory.free_in(stream(operation.stream));
  if (result == CUDA_SUCCESS) result = memory.allocate_in(stream(operation.stream));
  if (result != CUDA_SUCCESS) return result;
  return calls_.fill_bytes(memory.address(), static_cast<uint8_t>(operation.value),
                           program_.regions[operation.region].size_bytes, stream(operation.stream));
}

CUresult Execution::renew_stream(int number) {
  const CUresult result = calls_.destroy_stream(stream(number));
  return result == CUDA_SUCCESS ? create_stream(number) : result;
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
                                       stream(operation.stream), victim_, fail_index);
  return blaming(result, fail_index);
}

// Work that is in flight ends first, as the driver has it. What the context held is gone with it,
// memory of pools and mappings is not.
CUresult Execution::reset(int gpu) {
  if (const CUresult result = server_.reset(gpu); result != CUDA_SUCCESS) return result;
  if (gpu == 0) set_up_words();
  server_.use(gpu);
  for (size_t region = 0; region < places_.size(); ++region) {
    const Region& of = program_.regions[region];
    Memory& memory = places_[region].memory;
    if (of.gpu != gpu || !of.ends_with_context()) continue;
    must(memory.allocate(), "allocating again");
    must(memory.fill(program_.seed * 64 + region), "filling again");
  }
  for (size_t number = 0; number < streams_.size(); ++number)
    if (program_.streams[number].gpu == gpu)
      must(create_stream(static_cast<int>(number)), "creating a stream again");
  for (size_t event = 0; event < events_.size(); ++event)
    if (program_.event_gpus[event] == gpu)
      must(calls_.create_event(&events_[event], CU_EVENT_DEFAULT), "creating an event again");
  return CUDA_SUCCESS;
}

uint64_t Execution::hash_memory() {
  uint64_t all = 0;
  for (size_t region = 0; region < places_.size(); ++region) {
    server_.use(program_.regions[region].gpu);
    uint64_t hash = 0;
    must(places_[region].memory.hash(hash), "reading back");
    all = mix(all, hash);
  }
  return all;
}

std::string Execution::result() {
  const uint64_t memory = hash_memory();
  uint64_t seen = 0;
  std::string errors;
  std::string disorder;
  for (const Place& place : places_) seen = mix(seen, place.seen);
  for (const Notes& notes : notes_) {
    errors += (errors.empty() || notes.errors.empty() ? "" : ",") + notes.errors;
    if (disorder.empty()) disorder = notes.disorder;
  }
  tear_down();
  char start[128];
  std::snprintf(start, sizeof start, "%llu memory=%016llx notes=%016llx",
                static_cast<unsigned long long>(program_.seed),
                static_cast<unsigned long long>(memory), static_cast<unsigned long long>(seen));
  return std::string(start) + " errors=" + (errors.empty() ? "none" : errors) +
         " order=" + (disorder.empty() ? "ok" : disorder);
}

void Execution::tear_down() {
  for (const CUgraphExec graph : graphs_) must(calls_.destroy_executable(graph), "a graph");
  for (const CUevent event : events_) must(calls_.destroy_event(event), "an event");
  for (size_t number = 0; number < streams_.size(); ++number)
    if (!program_.streams[number].is_default())
      must(calls_.destroy_stream(streams_[number]), "a stream");
  for (size_t region = 0; region < places_.size(); ++region) {
    server_.use(program_.regions[region].gpu);
    must(places_[region].memory.free(), "freeing");
  }
  server_.use(0);
  must(calls_.free(victim_.device), "freeing a victim");
  must(calls_.unpin(victim_.host), "freeing a victim");
  must(calls_.unpin(words_), "freeing the words");
}

}  // namespace

class Runner::Impl {
 public:
  Impl(const Calls& calls, bool traces) : server{calls, traces} {
    must(calls.init(0), "cuInit");
    for (int gpu = 0; gpu < kGpus; ++gpu) {
      CUdevice device = 0;
      must(calls.get_device(&device, gpu), "cuDeviceGet");
      must(calls.retain_primary(&server.contexts.emplace_back(), device), "a context");
    }
  }

  Server server;
  Workers workers;
};

Runner::Runner(const Calls& calls, bool traces) : impl_(std::make_unique<Impl>(calls, traces)) {}
Runner::~Runner() = default;

std::string Runner::run(const Program& program) {
  return Execution(impl_->server, impl_->workers, program).run();
}

}  // namespace braid::stress
