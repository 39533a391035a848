// Programs with one peculiarity each: scenarios NAME. Answers that matter are printed.
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <thread>

#include "client.h"
#include "support/eventually.h"
#include "support/test_kernels.h"

namespace {

using namespace client;

constexpr size_t kSizeBytes = (size_t{6} << 20) + 77;

void to_device(CUdeviceptr to, const uint8_t* from, size_t size_bytes, CUstream stream = nullptr) {
  call("cuMemcpyHtoDAsync_v2", to, static_cast<const void*>(from), size_bytes, stream);
}

void expect_device_holds(CUdeviceptr device, const uint8_t* bytes, size_t size_bytes) {
  std::vector<uint8_t> got(size_bytes);
  read_in_pieces(got.data(), device, size_bytes);
  require(std::memcmp(got.data(), bytes, size_bytes) == 0, "wrong bytes");
}

// A random buffer in pinned memory, copied to the current GPU and looked at.
void copy_and_look(uint64_t seed) {
  uint8_t* host = pin(kSizeBytes);
  Random(seed).fill(host, kSizeBytes);
  const CUdeviceptr device = allocate(kSizeBytes);
  to_device(device, host, kSizeBytes);
  call("cuCtxSynchronize");
  expect_device_holds(device, host, kSizeBytes);
}

int copy_once() {
  use_gpu(0);
  copy_and_look(1);
  return 0;
}

// What setproctitle leaves of the name that glibc knows.
int nameless() {
  *program_invocation_short_name = '\0';
  prctl(PR_SET_NAME, "a worker");
  return copy_once();
}

int no_copies() {
  use_gpu(0);
  call("cuCtxSynchronize");
  return 0;
}

int refused_copy() {
  use_gpu(0);
  const CUdeviceptr device = allocate(4096);
  std::vector<uint8_t> host(8192);
  const auto copy = get<CUresult(CUdeviceptr, const void*, size_t)>("cuMemcpyHtoD_v2");
  require(copy(device, host.data(), host.size()) == CUDA_ERROR_INVALID_VALUE, "it went well");
  return 0;
}

// A kernel of the program's faults on GPU 1 while a copy to GPU 0 is under way: prints what GPU 0's
// context says then.
int fault_beside_a_copy() {
  constexpr size_t kManyBytes = size_t{64} << 20;
  use_gpu(1);
  CUmodule module = nullptr;
  CUfunction fault = nullptr;
  call("cuModuleLoadData", &module, braid::test::test_kernels());
  call("cuModuleGetFunction", &fault, module, braid::test::kFaultKernelName);
  use_gpu(0);
  uint8_t* host = pin(kManyBytes);
  Random(6).fill(host, kManyBytes);
  const CUdeviceptr spare = allocate(1 << 20);
  const CUdeviceptr device = allocate(kManyBytes);
  to_device(device, host, kManyBytes);
  uint64_t arguments[2] = {};
  void* parameters[] = {arguments};
  use_gpu(1);
  call("cuLaunchKernel", fault, 1u, 1u, 1u, 1u, 1u, 1u, 0u, CUstream{nullptr},
       static_cast<void**>(parameters), static_cast<void**>(nullptr));
  use_gpu(0);
  const CUresult end = get<CUresult()>("cuCtxSynchronize")();
  std::printf("%d %d\n", end, get<CUresult(CUdeviceptr)>("cuMemFree_v2")(spare));
  if (end == CUDA_SUCCESS) expect_device_holds(device, host, kManyBytes);
  std::this_thread::sleep_for(std::chrono::seconds(1));  // whatever looks after copies has looked
  return 0;
}

int exit_with_7() {
  copy_once();
  return 7;
}

// Memory that was never pinned: by itself, and once other memory has been pinned.
int pageable() {
  use_gpu(0);
  std::vector<uint8_t> host(kSizeBytes);
  Random(2).fill(host.data(), host.size());
  const CUdeviceptr device = allocate(kSizeBytes);
  call("cuMemcpyHtoD_v2", device, static_cast<const void*>(host.data()), host.size());
  pin(4096);
  call("cuMemcpyHtoD_v2", device, static_cast<const void*>(host.data()), host.size());
  expect_device_holds(device, host.data(), host.size());
  return 0;
}

// Random bytes to the current GPU and back, through memory that is not pinned.
void copy_pageable_and_look(uint64_t seed) {
  std::vector<uint8_t> host(kSizeBytes), landing(kSizeBytes);
  Random(seed).fill(host.data(), host.size());
  const CUdeviceptr device = allocate(kSizeBytes);
  to_device(device, host.data(), host.size());
  call("cuMemcpyDtoHAsync_v2", static_cast<void*>(landing.data()), device, landing.size(),
       static_cast<CUstream>(nullptr));
  require(landing == host, "wrong bytes");
}

// In the process, in a child that uses nothing, and in the process again; then the end, with
// threads that have nothing to do.
int pageable_fork() {
  use_gpu(0);
  copy_pageable_and_look(20);
  const pid_t child = fork();
  if (child == 0) return 0;
  int status = 0;
  waitpid(child, &status, 0);
  require(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child failed");
  copy_pageable_and_look(21);
  return 0;
}

long milliseconds_spent_in(useconds_t window_us) {
  const clock_t before = std::clock();
  usleep(window_us);
  return static_cast<long>((std::clock() - before) * 1000 / CLOCKS_PER_SEC);
}

// Says how many milliseconds of CPU a process spends in half a second that has copied and has
// nothing to do. What the copies left behind may end late on a busy machine, and is not counted: a
// process that is not idle spends time however often it is looked at.
int pageable_idle() {
  use_gpu(0);
  copy_pageable_and_look(22);
  long spent = milliseconds_spent_in(500000);
  for (int again = 0; again < 9 && spent > 1; ++again) spent = milliseconds_spent_in(500000);
  std::printf("%ld\n", spent);
  return 0;
}

int pageable_threads() {
  std::vector<std::thread> workers;
  for (int number = 0; number < 6; ++number)
    workers.emplace_back([number] {
      use_gpu(number % 2);
      for (int copy = 0; copy < 3; ++copy)
        copy_pageable_and_look(static_cast<uint64_t>(number * 10 + copy));
    });
  for (std::thread& worker : workers) worker.join();
  return 0;
}

// Copies whose last bytes are still on their way when the process ends.
int pageable_exit() {
  use_gpu(0);
  std::vector<uint8_t> host(kSizeBytes);
  const CUdeviceptr device = allocate(kSizeBytes);
  for (int copy = 0; copy < 10; ++copy) to_device(device, host.data(), kSizeBytes);
  return 0;
}

// A context of the program's own, and a primary context that is reset, with copies in each.
int pageable_contexts() {
  CUdevice device = 0;
  CUcontext context = use_gpu(0);
  copy_pageable_and_look(23);
  call("cuDeviceGet", &device, 0);
  call("cuDevicePrimaryCtxReset_v2", device);
  call("cuCtxCreate_v2", &context, 0u, device);
  copy_pageable_and_look(24);
  call("cuCtxDestroy_v2", context);
  use_gpu(0);
  copy_pageable_and_look(25);
  return 0;
}

int registered() {
  use_gpu(0);
  void* mapped =
      mmap(nullptr, kSizeBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  auto* host = static_cast<uint8_t*>(mapped);
  Random(3).fill(host, kSizeBytes);
  call("cuMemHostRegister_v2", mapped, kSizeBytes, 0u);
  const CUdeviceptr device = allocate(kSizeBytes);
  to_device(device, host, kSizeBytes);
  call("cuCtxSynchronize");
  expect_device_holds(device, host, kSizeBytes);
  return 0;
}

// A copy that becomes a node of a graph; where capture is not to be had, says so.
int capturing() {
  use_gpu(0);
  uint8_t* host = pin(kSizeBytes);
  const CUdeviceptr device = allocate(kSizeBytes);
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  call("cuStreamCreate", &stream, static_cast<unsigned>(CU_STREAM_NON_BLOCKING));
  auto* begin = get<CUresult(CUstream, CUstreamCaptureMode)>("cuStreamBeginCapture_v2");
  if (begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_ERROR_NOT_SUPPORTED) {
    std::puts("no capture here");
    return 0;
  }
  to_device(device, host, kSizeBytes, stream);
  call("cuStreamEndCapture", stream, &graph);
  std::puts("captured");
  return 0;
}

// While one thread records in Global mode, another retains a context that has been reset, which is
// allowed and makes braid open a relay there, and copies: the graph is whole.
int relay_opened_beside_a_capture() {
  constexpr size_t kManyBytes = size_t{16} << 20;
  CUcontext second = use_gpu(1);
  const CUcontext first = use_gpu(0);
  uint8_t* host = pin(kManyBytes);
  Random(9).fill(host, kManyBytes);
  const CUdeviceptr device = allocate(kManyBytes);
  CUstream recording = nullptr, copies = nullptr;
  CUgraph graph = nullptr;
  call("cuStreamCreate", &recording, static_cast<unsigned>(CU_STREAM_NON_BLOCKING));
  call("cuStreamCreate", &copies, static_cast<unsigned>(CU_STREAM_NON_BLOCKING));
  call("cuDevicePrimaryCtxReset_v2", CUdevice{1});
  call("cuStreamBeginCapture_v2", recording, CU_STREAM_CAPTURE_MODE_GLOBAL);
  std::thread other([&] {
    call("cuDevicePrimaryCtxRetain", &second, CUdevice{1});
    call("cuCtxSetCurrent", first);
    to_device(device, host, kManyBytes, copies);
  });
  other.join();
  call("cuStreamEndCapture", recording, &graph);
  require(graph != nullptr, "the capture was ended");
  call("cuStreamSynchronize", copies);
  expect_device_holds(device, host, kManyBytes);
  return 0;
}

int device_to_device() {
  use_gpu(0);
  pin(4096);
  const CUdeviceptr from = allocate(kSizeBytes);
  const CUdeviceptr to = allocate(kSizeBytes);
  call("cuMemcpy", to, from, kSizeBytes);
  return 0;
}

// What a program hears when it manages peer access by itself, before and after it pins memory.
int peers() {
  CUcontext first = use_gpu(0);
  CUcontext second = use_gpu(1);
  auto* enable = get<CUresult(CUcontext, unsigned)>("cuCtxEnablePeerAccess");
  auto* disable = get<CUresult(CUcontext)>("cuCtxDisablePeerAccess");
  const auto say = [](const char* what, CUresult result) {
    std::printf("%s %d\n", what, static_cast<int>(result));
  };
  call("cuCtxSetCurrent", first);
  say("disable before any enable", disable(second));
  say("enable", enable(second, 0));
  for (int round = 0; round < 2; ++round) {
    say("enable again", enable(second, 0));
    say("disable", disable(second));
    say("disable again", disable(second));
    say("enable", enable(second, 0));
    say("enable itself", enable(first, 0));
    say("enable null", enable(nullptr, 0));
    say("disable null", disable(nullptr));
    say("disable itself", disable(first));
    say("enable with flags", enable(second, 1));
    call("cuCtxSetCurrent", second);
    say("the other way: disable", disable(first));
    say("the other way: enable", enable(first, 0));
    say("the other way: disable", disable(first));
    call("cuCtxSetCurrent", first);
    if (round == 0) copy_and_look(4);
  }
  copy_and_look(5);
  return 0;
}

// The child does nothing and exits; the parent goes on copying.
int fork_idle() {
  use_gpu(0);
  copy_and_look(6);
  const pid_t child = fork();
  if (child == 0) return 0;
  int status = 0;
  waitpid(child, &status, 0);
  require(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child failed");
  copy_and_look(7);
  return 0;
}

// A child that goes on with its parent's CUDA: an error, and the same one as natively.
int fork_copying() {
  use_gpu(0);
  copy_and_look(12);
  uint8_t* host = pin(kSizeBytes);
  const CUdeviceptr device = allocate(kSizeBytes);
  const pid_t child = fork();
  if (child == 0) {
    auto* copy = get<CUresult(CUdeviceptr, const void*, size_t)>("cuMemcpyHtoD_v2");
    std::printf("child: %d\n", static_cast<int>(copy(device, host, kSizeBytes)));
    std::fflush(stdout);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  require(WIFEXITED(status), "the child crashed");
  copy_and_look(13);
  return 0;
}

// CUDA starts in the child only, as multiprocessing workers do.
int fork_first() {
  const pid_t child = fork();
  if (child == 0) return copy_once();
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int exit_in_flight() {
  use_gpu(0);
  uint8_t* host = pin(kSizeBytes);
  const CUdeviceptr device = allocate(kSizeBytes);
  for (int copy = 0; copy < 20; ++copy) to_device(device, host, kSizeBytes);
  return 0;
}

// Threads that reach CUDA at the same moment, each with its own memory.
int threads() {
  std::atomic<int> ready{0};
  std::vector<std::thread> workers;
  for (int number = 0; number < 8; ++number)
    workers.emplace_back([number, &ready] {
      ready.fetch_add(1);
      while (ready.load() < 8) std::this_thread::yield();
      use_gpu(number % 2);
      for (int copy = 0; copy < 3; ++copy) copy_and_look(static_cast<uint64_t>(number * 10 + copy));
    });
  for (std::thread& worker : workers) worker.join();
  return 0;
}

int own_context() {
  CUdevice device = 0;
  CUcontext context = nullptr;
  call("cuInit", 0u);
  call("cuDeviceGet", &device, 0);
  call("cuCtxCreate_v2", &context, 0u, device);
  copy_and_look(8);
  call("cuCtxDestroy_v2", context);
  call("cuCtxCreate_v2", &context, 0u, device);
  copy_and_look(9);
  call("cuCtxDestroy_v2", context);
  return 0;
}

int primary_reset() {
  CUcontext context = use_gpu(0);
  copy_and_look(10);
  CUdevice device = 0;
  call("cuDeviceGet", &device, 0);
  call("cuDevicePrimaryCtxReset_v2", device);
  call("cuDevicePrimaryCtxRetain", &context, device);
  call("cuCtxSetCurrent", context);
  copy_and_look(11);
  return 0;
}

// The ends that run no exit handlers, or others.
int underscore_exit() {
  copy_once();
  _exit(7);
}

int capital_exit() {
  copy_once();
  std::_Exit(7);
}

int quick_exit() {
  copy_once();
  std::quick_exit(7);
}

// A child of vfork shares its parent's memory, and ends without a word.
int vfork_exit() {
  copy_once();
  const pid_t child = vfork();
  if (child == 0) _exit(0);
  int status = 0;
  waitpid(child, &status, 0);
  copy_and_look(14);
  return 0;
}

void print_handled(int) { require(write(STDOUT_FILENO, "handled\n", 8) == 8, "no stdout"); }

// Asks braid for statistics between two copies, and again while nothing has changed.
int signalled() {
  use_gpu(0);
  copy_and_look(15);
  raise(SIGUSR2);
  copy_and_look(16);
  raise(SIGUSR2);
  return 0;
}

int signalled_with_handler_after() {
  use_gpu(0);
  signal(SIGUSR2, print_handled);
  return signalled();
}

// Natively a synchronous copy is no unsafe call: the graph that is recorded meanwhile is whole.
int copies_beside_a_recording() {
  use_gpu(0);
  uint8_t* host = pin(kSizeBytes);
  const CUdeviceptr device = allocate(kSizeBytes);
  CUstream recording = nullptr;
  CUgraph graph = nullptr;
  call("cuStreamCreate", &recording, static_cast<unsigned>(CU_STREAM_NON_BLOCKING));
  call("cuStreamBeginCapture_v2", recording, CU_STREAM_CAPTURE_MODE_GLOBAL);
  call("cuMemcpyHtoD_v2", device, static_cast<const void*>(host), kSizeBytes);
  call("cuStreamEndCapture", recording, &graph);
  return 0;
}

// Ended from outside, as by Ctrl-C or a batch system.
int interrupted() {
  use_gpu(0);
  copy_and_look(17);
  raise(SIGINT);
  return 0;
}

int terminated_with_handler() {
  use_gpu(0);
  signal(SIGTERM, [](int) { std::exit(9); });
  copy_and_look(18);
  raise(SIGTERM);
  return 0;
}

void wait_until_a_file_says(const char* path, const std::string& what) {
  const auto says_so = [&] {
    std::ifstream file(path);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    return text.find(what) != std::string::npos;
  };
  require(braid::test::eventually(says_so), what.c_str());
}

// Ended without a chance to say anything, once a file says what it has done, both times.
int killed_later(const char* path) {
  use_gpu(0);
  copy_and_look(19);
  wait_until_a_file_says(path, R"("accelerated":{"calls":1)");
  copy_and_look(20);
  wait_until_a_file_says(path, R"("accelerated":{"calls":2)");
  raise(SIGKILL);
  return 0;
}

// Signals arrive while other threads copy, at whatever point they are.
int signalled_while_copying() {
  std::atomic<bool> done{false};
  use_gpu(0);
  std::thread sender([&done] {
    while (!done.load()) {
      kill(getpid(), SIGUSR2);
      usleep(300);
    }
  });
  threads();
  done.store(true);
  sender.join();
  return 0;
}

// A program that knows CUDA's names but has no driver: nothing must appear that is not there.
int no_driver() {
  std::printf("default %d\n", dlsym(RTLD_DEFAULT, "cuMemcpyHtoD_v2") != nullptr);
  void* program = dlopen(nullptr, RTLD_NOW);
  std::printf("program %d\n", dlsym(program, "cuMemHostAlloc") != nullptr);
  std::printf("error %d\n", dlerror() != nullptr);
  std::printf("malloc %d\n", dlsym(RTLD_DEFAULT, "malloc") != nullptr);
  std::printf("next %d\n", dlsym(RTLD_NEXT, "malloc") != nullptr);
  std::printf("absent %d\n", dlsym(RTLD_DEFAULT, "cuNoSuchFunction") != nullptr);
  std::printf("loaded %d\n", dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD) != nullptr);
  return 0;
}

// A program that looks something up and calls something that others interpose.
int bystander() {
  require(dlsym(RTLD_DEFAULT, "malloc") != nullptr, "no malloc");
  require(getppid() > 0, "no parent");
  return 0;
}

// Another library has functions of the driver's and of libbraid's names: they are its own.
int namesake(const char* library) {
  void* handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  require(handle != nullptr, "no namesake library");
  for (const char* name : {"cuMemcpy", "braid_open"})
    std::printf("%d\n", reinterpret_cast<int (*)()>(dlsym(handle, name))());
  return 0;
}

// cuda-gdb does this when it sees the driver being loaded.
void start_debugger_session() {
  auto* session = static_cast<uint32_t*>(dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cudbgSessionId"));
  require(session != nullptr, "no cudbgSessionId");
  *session = 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, int (*)()> scenarios = {
      {"copy_once", copy_once},
      {"copy_once_debugged", copy_once},
      {"exit_with_7", exit_with_7},
      {"pageable", pageable},
      {"pageable_fork", pageable_fork},
      {"no_copies", no_copies},
      {"nameless", nameless},
      {"refused_copy", refused_copy},
      {"pageable_idle", pageable_idle},
      {"fault_beside_a_copy", fault_beside_a_copy},
      {"relay_opened_beside_a_capture", relay_opened_beside_a_capture},
      {"pageable_threads", pageable_threads},
      {"pageable_exit", pageable_exit},
      {"pageable_contexts", pageable_contexts},
      {"registered", registered},
      {"capturing", capturing},
      {"device_to_device", device_to_device},
      {"peers", peers},
      {"fork_idle", fork_idle},
      {"fork_copying", fork_copying},
      {"fork_first", fork_first},
      {"exit_in_flight", exit_in_flight},
      {"threads", threads},
      {"own_context", own_context},
      {"primary_reset", primary_reset},
      {"underscore_exit", underscore_exit},
      {"capital_exit", capital_exit},
      {"quick_exit", quick_exit},
      {"vfork_exit", vfork_exit},
      {"copies_beside_a_recording", copies_beside_a_recording},
      {"interrupted", interrupted},
      {"terminated_with_handler", terminated_with_handler},
      {"signalled", signalled},
      {"signalled_with_handler_before", signalled},
      {"signalled_with_handler_after", signalled_with_handler_after},
      {"signalled_while_copying", signalled_while_copying},
  };
  const std::string name = argc > 1 ? argv[1] : "";
  if (name == "no_driver") return no_driver();
  if (name == "bystander") return bystander();
  if (name == "signalled_with_handler_before") signal(SIGUSR2, print_handled);
  if (name == "copy_once_debugged") start_debugger_session();
  const bool has_driver = use_lookup("dlsym");
  if (name == "namesake") return namesake(argv[2]);
  require(has_driver, "no driver");
  if (name == "killed_later") return killed_later(argv[2]);
  const auto scenario = scenarios.find(name);
  require(scenario != scenarios.end(), "no such scenario");
  return scenario->second();
}
