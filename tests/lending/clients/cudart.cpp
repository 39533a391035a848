// A program that reaches CUDA's runtime in the ways of programs that are not linked with it. Its
// arguments are steps, in order, and after -- the PCI addresses of GPUs to ask about:
//   handle=PATH    opens a runtime, looks its functions up on the handle, and reports
//   default=PATH   opens it with RTLD_GLOBAL, and looks up in RTLD_DEFAULT
//   library=PATH   opens a library that is linked with a runtime (cudart_linked.cpp), which reports
//   start=PATH     opens a runtime and only asks it how many GPUs there are
//   jump=PATH      the same by way of a library that is linked with a runtime
//   driver         asks the driver how many there are
//   context        makes a context
//   next=PATH      says what such a library finds in RTLD_NEXT
//   lookups=PATH   says what is found where before and after a runtime is opened
#include <dlfcn.h>

#include <cstdio>
#include <string>
#include <vector>

#include "cudart_report.h"
#include "tests/preload/clients/client.h"

namespace {

Cudart find_all(void* handle) {
  const auto find = [handle](const char* name) {
    void* const found = dlsym(handle, name);
    client::require(found != nullptr, name);
    return found;
  };
#define CUDART_FIND(name) reinterpret_cast<decltype(Cudart::name)>(find(#name)),
  return {CUDART_FUNCTIONS(CUDART_FIND) reinterpret_cast<decltype(Cudart::cudaMalloc)>(
      find("cudaMalloc"))};
#undef CUDART_FIND
}

void* open(const std::string& path, int flags) {
  void* const handle = dlopen(path.c_str(), RTLD_NOW | flags);
  client::require(handle != nullptr, path.c_str());
  return handle;
}

// The file that holds what was found, or that nothing was.
void say_where(const char* scope, void* found) {
  Dl_info info{};
  const bool is_known = found != nullptr && dladdr(found, &info) != 0;
  // As POSIX says to tell a symbol of no address from none.
  const bool is_error = dlerror() != nullptr;
  client::require(is_error == (found == nullptr), "dlerror says otherwise");
  const std::string file = is_known ? info.dli_fname : found != nullptr ? "somewhere" : "nowhere";
  std::printf(" %s: %s", scope, file.substr(file.rfind('/') + 1).c_str());
}

void look_up_next(const std::string& path) {
  void* const find = dlsym(open(path, RTLD_LOCAL), "find_next");
  say_where("next", reinterpret_cast<void* (*)(const char*)>(find)("cudaSetDevice"));
  std::printf("\n");
}

void look_up(const char* when, const char* name, void* runtime) {
  std::printf("%s, %s:", when, name);
  say_where("default", dlsym(RTLD_DEFAULT, name));
  say_where("next", dlsym(RTLD_NEXT, name));
  say_where("program", dlsym(dlopen(nullptr, RTLD_NOW), name));
  say_where("libm", dlsym(dlopen("libm.so.6", RTLD_NOW), name));
  if (runtime != nullptr) say_where("runtime", dlsym(runtime, name));
  std::printf("\n");
}

void look_up(const std::string& path) {
  const auto each = [](const char* when, void* runtime) {
    for (const char* name : {"cudaSetDevice", "cudaMalloc", "cudaDeviceGraphMemTrim", "cudaNone"})
      look_up(when, name, runtime);
  };
  each("not loaded", nullptr);
  void* const handle = open(path, RTLD_LOCAL);
  each("local", handle);
  open(path, RTLD_GLOBAL);
  each("global", handle);
}

void start(const std::string& path, const char* function) {
  auto* count =
      reinterpret_cast<decltype(&cudaGetDeviceCount)>(dlsym(open(path, RTLD_LOCAL), function));
  int gpus = -1;
  client::require(count != nullptr && count(&gpus) == cudaSuccess, function);
  client::require(dlerror() == nullptr, "an error of somebody else's");
  std::printf("%d GPUs\n", gpus);
}

void ask_driver() {
  int count = -1;
  client::call("cuInit", 0u);
  client::call("cuDeviceGetCount", &count);
  std::printf("driver: %d GPUs\n", count);
}

void run(const std::string& step, const std::string& path, char** addresses) {
  if (step == "handle") {
    report(find_all(open(path, RTLD_LOCAL)), addresses);
  } else if (step == "default") {
    open(path, RTLD_GLOBAL);
    report(find_all(RTLD_DEFAULT), addresses);
  } else if (step == "library") {
    auto* linked =
        reinterpret_cast<void (*)(char**)>(dlsym(open(path, RTLD_LOCAL), "report_linked"));
    client::require(linked != nullptr, "report_linked");
    linked(addresses);
  } else if (step == "start") {
    start(path, "cudaGetDeviceCount");
  } else if (step == "jump") {
    start(path, "count_gpus");
  } else if (step == "next") {
    look_up_next(path);
  } else if (step == "driver") {
    ask_driver();
  } else if (step == "context") {
    client::use_gpu(0);
  } else if (step == "lookups") {
    look_up(path);
  } else {
    client::require(false, step.c_str());
  }
}

}  // namespace

int main(int, char** argv) {
  client::require(client::use_lookup("dlsym"), "no driver");
  std::vector<std::string> steps;
  char** word = argv + 1;
  for (; *word != nullptr && std::string(*word) != "--"; ++word) steps.push_back(*word);
  if (*word != nullptr) ++word;
  for (const std::string& step : steps) {
    const size_t equals = step.find('=');
    run(step.substr(0, equals), equals < step.size() ? step.substr(equals + 1) : "", word);
  }
  return 0;
}
