// every_call [--mover kernel|copy-engine] [--every] [--fault NAME:NTH[+]]: runs one program
// (tour.h) under braid, which is linked in, again and again: each time one call that braid makes of
// the driver is refused, and of some that call and all later ones of the function (NTH+). The
// program must not notice: the same bytes, the same answers, no hang; and when the engine is
// closed, nothing of braid's is left, whatever was refused. `verdict` has the exceptions.
//
// Each run is a process of its own, on the emulated server. A fault that braid does not survive is
// named with the command that repeats it alone.
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "cuda/driver.h"
#include "faults/faulty_driver.h"
#include "faults/tour.h"
#include "preload/helper.h"
#include "preload/state.h"
#include "stress/calls.h"
#include "stress/execution.h"

// The linker's --wrap: whoever loads the driver table gets the wrapped one.
#define FAULTS_LOAD_DRIVER "_ZN5braid4cuda11load_driverERKSt8functionIFPvPKcEE"

namespace braid::cuda {
Result<Driver> load_real_driver(const SymbolLookup& lookup) asm("__real_" FAULTS_LOAD_DRIVER);
Result<Driver> load_faulty_driver(const SymbolLookup& lookup) asm("__wrap_" FAULTS_LOAD_DRIVER);
}  // namespace braid::cuda

namespace braid::faults {
namespace {

// What this process is to refuse, once it loads the driver.
Fault& fault_of_process() {
  static Fault fault;
  return fault;
}

// A run takes a tenth of a second, or some seconds where braid gives up waiting.
constexpr int kHangMs = 60'000;

// Of a function that is called more often than this, every n-th call is refused, so that at most so
// many are; all of them by --every.
constexpr int kMostOfOne = 8;

struct Request {
  std::string mover = "kernel";
  bool is_every = false;
  Fault fault;
  std::string program;  ///< this one's name
};

// ---- In the child ----

void set_environment(const Request& request, bool with_braid) {
  setenv("BRAID_SERVER", FAULTS_PROFILE, 1);
  setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3", 1);
  setenv("BRAID_COSTS", "none", 1);
  setenv("BRAID_OPENING", "wait", 1);  // the same calls each time
  setenv("BRAID_THRESHOLD", "1", 1);
  setenv("BRAID_MOVER", request.mover.c_str(), 1);
  setenv("BRAID_PAGEABLE", with_braid ? "1" : "0", 1);
  setenv("BRAID_RELAYS", with_braid ? "all" : "none", 1);
}

// Threads of braid's are called so.
int braid_threads() {
  int count = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "comm");
    std::string name;
    std::getline(file, name);
    if (name == "braid") ++count;
  }
  return count;
}

std::string listed(const std::vector<std::string>& things) {
  std::map<std::string, int> counted;
  for (const std::string& thing : things) ++counted[thing];
  std::string text;
  for (const auto& [thing, count] : counted)
    text += (text.empty() ? "" : ", ") + std::to_string(count) + " x " + thing;
  return text;
}

// What is left when the engine is gone, or has never been. If the last word of a relay is refused,
// braid cannot tell when its share has ended: the target's host memory stays registered
// (Target::leave_memory).
std::string leaks(const Fault& fault) {
  std::string found;
  auto owned = still_owned();
  if (fault.name == "cuStreamWriteValue32") std::erase(owned, "registration");
  if (owned.size() > (gives_back(fault.name) ? 1 : 0)) found += "leaked " + listed(owned) + "; ";
  if (const std::string wrong = misuse(); !wrong.empty()) found += wrong + "; ";
  if (const int threads = braid_threads(); threads > 0)
    found += std::to_string(threads) + " threads are left; ";
  return found;
}

// The program resets a context: the ledger must hear of it.
decltype(stress::Calls::reset_primary) reset_by_program = nullptr;

CUresult reset_and_note(CUdevice device) {
  unsigned flags = 0;
  int is_active = 0;
  CUcontext context = nullptr;
  const auto& real = real_driver();
  real.cuDevicePrimaryCtxGetState(device, &flags, &is_active);
  if (is_active != 0 && real.cuDevicePrimaryCtxRetain(&context, device) == CUDA_SUCCESS)
    real.cuDevicePrimaryCtxRelease(device);
  const CUresult result = reset_by_program(device);
  if (result == CUDA_SUCCESS) context_ended(context, device, true);
  return result;
}

/// What a child tells its parent, as lines: "line ...", "leaks ...", "calls NAME COUNT".
void run_child(const Request& request, bool with_braid, int output) {
  prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);  // huge pages would be cleared for a few bytes each
  set_environment(request, with_braid);
  fault_of_process() = request.fault;
  std::ostringstream said;
  // By its path first: then it is the libcuda.so.1 that everybody finds.
  if (auto opened = cuda::open_driver(FAULTS_EMULATOR); !opened.ok())
    said << "trouble " << opened.status().message() << '\n';
  try {
    stress::Calls calls = stress::open_calls();
    reset_by_program = calls.reset_primary;
    calls.reset_primary = reset_and_note;
    {
      const stress::Program tour = make_tour();
      stress::Runner runner(calls, tour.machine.gpus, false);
      const std::string line = runner.run(tour);
      said << "line " << line << '\n';
    }
    for (const auto& [name, count] : calls_made()) said << "calls " << name << ' ' << count << '\n';
    if (with_braid && preload::engine() == nullptr) said << "closed\n";
    const preload::ReentryGuard inside;
    if (preload::engine() != nullptr)
      for (const std::string& problem : preload::engine()->problems())
        said << "problem " << problem << '\n';
    preload::end_helper();
    delete preload::engine();  // owner: nobody: the library keeps it until the process ends
    if (request.fault.nth != 0 && !was_refused()) said << "unreached\n";
    if (const std::string found = leaks(request.fault); !found.empty())
      said << "leaks " << found << '\n';
  } catch (const std::exception& trouble) {
    said << "trouble " << trouble.what() << '\n';
  }
  const std::string text = said.str() + "end\n";
  for (size_t at = 0; at < text.size();) {
    const ssize_t written = write(output, text.data() + at, text.size() - at);
    if (written <= 0) break;
    at += static_cast<size_t>(written);
  }
}

// ---- In the parent ----

struct Report {
  bool hung = false;
  int status = 0;
  std::string line;
  std::string trouble;   ///< leaks, or what was thrown
  std::string problems;  ///< that the engine reports
  bool is_closed = false;
  bool is_unreached = false;
  bool is_whole = false;
  std::map<std::string, int> calls;
};

Report parse(const std::string& text) {
  Report report;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string word;
    words >> word;
    const std::string rest = line.size() > word.size() ? line.substr(word.size() + 1) : "";
    if (word == "line") report.line = rest;
    if (word == "trouble" || word == "leaks") report.trouble += word + ": " + rest + " ";
    if (word == "problem") report.problems += "  braid says: " + rest + "\n";
    if (word == "closed") report.is_closed = true;
    if (word == "unreached") report.is_unreached = true;
    if (word == "end") report.is_whole = true;
    if (word == "calls") {
      std::string name;
      int count = 0;
      words >> name >> count;
      report.calls[name] = count;
    }
  }
  return report;
}

Report run(const Request& request, bool with_braid) {
  int ends[2];
  if (pipe(ends) != 0) std::abort();
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    run_child(request, with_braid, ends[1]);
    _exit(0);
  }
  close(ends[1]);
  std::string text;
  bool hung = false;
  while (true) {
    pollfd wait{ends[0], POLLIN, 0};
    hung = poll(&wait, 1, kHangMs) == 0;
    char some[4096];
    const ssize_t got = hung ? 0 : read(ends[0], some, sizeof some);
    if (got <= 0) break;
    text.append(some, static_cast<size_t>(got));
  }
  close(ends[0]);
  if (hung) kill(child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  Report report = parse(text);
  report.hung = hung;
  report.status = status;
  return report;
}

void say_replay(const Request& request, const Fault& fault) {
  std::printf("  replay: %s --mover %s --fault %s\n", request.program.c_str(),
              request.mover.c_str(), describe(fault).c_str());
}

// The program was told of an error by a call that it checks, or has noted nothing but this error;
// then its bytes are as they should be.
bool is_told(const Report& report, const std::string& expected, CUresult error) {
  const std::string code = std::to_string(error);
  if (report.trouble.ends_with(": error " + code + " ")) return true;
  const std::string none = "errors=none";
  const size_t at = expected.find(none);
  const std::string rest = expected.substr(at + none.size());
  if (!report.line.starts_with(expected.substr(0, at)) || !report.line.ends_with(rest))
    return false;
  std::istringstream errors(report.line.substr(at, report.line.size() - rest.size() - at));
  for (std::string one; std::getline(errors, one, ',');)
    if (!one.ends_with(":" + code)) return false;
  return true;
}

// The faults that a program may notice, and what it is told.
bool may_be_told(const Request& request, const Fault& fault, CUresult& error) {
  error = refusal_of(fault.name);
  // A copy that waits answers what its wait was answered, natively too.
  if (fault.name == "cuStreamSynchronize") return true;
  // No copy of the copy-engine mover can be made any more, not even the direct path's.
  const bool is_copy = fault.name == "cuMemcpyHtoDAsync" || fault.name == "cuMemcpyDtoHAsync";
  error = CUDA_ERROR_LAUNCH_FAILED;
  return fault.stays && is_copy && request.mover == "copy-engine";
}

// Once nothing else is answered, the thread cannot be put back into the program's context or
// capture mode; or nobody can tell any more whether a GPU still writes, and its memory is left to
// it.
bool is_beyond_help(const std::string& name) {
  return name == "cuCtxGetCurrent" || name == "cuCtxSetCurrent" || name == "cuStreamQuery" ||
         name == "cuThreadExchangeStreamCaptureMode";
}

/// Empty when the program and the GPUs are as they would be without the fault.
std::string verdict(const Request& request, const Report& report, const std::string& expected) {
  if (report.hung) return "hangs";
  if (!report.is_whole)
    return "ends early, status " + std::to_string(report.status) + " " + report.trouble;
  CUresult error{};
  if (may_be_told(request, request.fault, error) && is_told(report, expected, error)) return "";
  if (!report.trouble.empty()) return report.trouble;
  if (report.line != expected) return "native: " + expected + "\n  braid:  " + report.line;
  return "";
}

bool survives(Request request, const Fault& fault, const std::string& expected, int& unreached) {
  request.fault = fault;
  const Report report = run(request, true);
  if (report.is_unreached) ++unreached;
  const std::string wrong = verdict(request, report, expected);
  if (wrong.empty()) return true;
  std::printf("%s refused, %s: %s\n%s", describe(fault).c_str(), request.mover.c_str(),
              wrong.c_str(), report.problems.c_str());
  say_replay(request, fault);
  std::fflush(stdout);
  return false;
}

std::vector<Fault> choose(const Request& request, const std::map<std::string, int>& calls) {
  std::vector<Fault> faults;
  for (const auto& [name, count] : calls) {
    const int stride = request.is_every ? 1 : (count + kMostOfOne - 1) / kMostOfOne;
    for (int nth = 1; nth <= count; nth += stride) faults.push_back({name, nth});
    if (is_beyond_help(name) || gives_back(name)) continue;
    faults.push_back({name, 1, true});
    if (count > 1) faults.push_back({name, count / 2 + 1, true});
  }
  return faults;
}

int run_all(const Request& request) {
  Request plain = request;
  plain.fault = {};
  const Report native = run(plain, false);
  const Report whole = run(plain, true);
  const std::string wrong = verdict(plain, whole, native.line);
  if (!native.is_whole || !wrong.empty() || whole.is_closed) {
    std::printf("without a fault: %s%s\n", wrong.c_str(), native.trouble.c_str());
    return 1;
  }
  int calls = 0;
  for (const auto& [name, count] : whole.calls) calls += count;
  const std::vector<Fault> faults =
      request.fault.nth != 0 ? std::vector<Fault>{request.fault} : choose(request, whole.calls);
  int failures = 0, unreached = 0;
  for (const Fault& fault : faults)
    if (!survives(request, fault, native.line, unreached)) ++failures;
  std::printf("%zu faults among %d calls, %s mover: %d not survived, %d not reached\n",
              faults.size(), calls, request.mover.c_str(), failures, unreached);
  return failures == 0 ? 0 : 1;
}

bool parse(int count, char** words, Request& request) {
  request.program = words[0];
  for (int i = 1; i < count; ++i) {
    const std::string name = words[i];
    if (name == "--every")
      request.is_every = true;
    else if (name == "--mover" && i + 1 < count)
      request.mover = words[++i];
    else if (name == "--fault" && i + 1 < count) {
      if (!parse_fault(words[++i], request.fault)) return false;
    } else {
      return false;
    }
  }
  return true;
}

}  // namespace
}  // namespace braid::faults

braid::Result<braid::cuda::Driver> braid::cuda::load_faulty_driver(const SymbolLookup& lookup) {
  auto loaded = load_real_driver(lookup);
  if (!loaded.ok()) return loaded;
  return faults::wrap(loaded.value(), faults::fault_of_process());
}

int main(int count, char** words) {
  braid::faults::Request request;
  if (!braid::faults::parse(count, words, request)) {
    std::fprintf(stderr,
                 "usage: every_call [--mover kernel|copy-engine] [--every] "
                 "[--fault NAME:NTH[+]]\n");
    return 2;
  }
  return braid::faults::run_all(request);
}
