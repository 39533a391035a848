#include "emulator/process/process.h"

#include <dlfcn.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <numeric>
#include <sstream>
#include <string>
#include <utility>

#include "base/gpu_uuid.h"
#include "emulator/errors.h"
#include "emulator/model/gpu_uuid.h"
#include "topology/profile.h"

namespace braid::emulator {
namespace {

std::atomic<World*> the_world{nullptr};
std::atomic<bool> forked{false};
std::atomic<bool> exiting{false};
std::atomic<uint64_t> threads{0};

// The GPU that an entry of CUDA_VISIBLE_DEVICES names, by its number or by the beginning of its
// UUID; -1: none, or more than one.
int named_gpu(const std::string& entry, const topology::Server& server) {
  const int count = static_cast<int>(server.gpus.size());
  if (!entry.starts_with("GPU-")) {
    char* end = nullptr;
    const long gpu = std::strtol(entry.c_str(), &end, 10);
    return end != entry.c_str() && *end == '\0' && gpu >= 0 && gpu < count ? static_cast<int>(gpu)
                                                                           : -1;
  }
  int found = -1;
  for (int gpu = 0; gpu < count; ++gpu) {
    if (!names_gpu(entry, format_gpu_uuid(gpu_uuid(server, gpu).bytes))) continue;
    if (found >= 0) return -1;
    found = gpu;
  }
  return found;
}

// CUDA_VISIBLE_DEVICES: the GPUs up to the first entry that names none, as CUDA reads it.
std::vector<int> visible_gpus(const topology::Server& server) {
  std::vector<int> visible(server.gpus.size());
  std::iota(visible.begin(), visible.end(), 0);
  const char* text = std::getenv("CUDA_VISIBLE_DEVICES");
  if (text == nullptr) return visible;
  visible.clear();
  std::istringstream entries(text);
  for (std::string entry; std::getline(entries, entry, ',');) {
    const int gpu = named_gpu(entry, server);
    const bool again = std::find(visible.begin(), visible.end(), gpu) != visible.end();
    if (gpu < 0 || again) break;
    visible.push_back(gpu);
  }
  return visible;
}

// "h20x8" is a profile that was installed with this library; all else is a path.
std::string profile_path(const std::string& name) {
  Dl_info here{};
  if (name.find_first_of("/.") != std::string::npos ||
      dladdr(reinterpret_cast<const void*>(&profile_path), &here) == 0)
    return name;
  const auto library =
      std::filesystem::absolute(here.dli_fname);  // lib/braid/emulator/libcuda.so.1
  return library.parent_path() / "../../../share/braid/profiles" / (name + ".json");
}

CUresult make_world() {
  const char* path = std::getenv("BRAID_SERVER");
  if (path == nullptr || *path == '\0') {
    say("no server to emulate: BRAID_SERVER is not set. Use `braid run --server PROFILE -- CMD`, "
        "or set BRAID_SERVER to a profile's name or path");
    return CUDA_ERROR_NO_DEVICE;
  }
  auto server = topology::load_profile(profile_path(path));
  if (!server.ok()) {
    say(server.status().message());
    return CUDA_ERROR_NO_DEVICE;
  }
  std::vector<int> visible = visible_gpus(server.value());
  if (visible.empty()) return CUDA_ERROR_NO_DEVICE;
  const char* faults = std::getenv("BRAID_FAULTS");
  auto world =
      World::create(std::move(server).value(), std::move(visible), faults != nullptr ? faults : "");
  if (!world.ok()) {
    say(world.status().message());
    return CUDA_ERROR_NO_DEVICE;
  }
  pthread_atfork(nullptr, nullptr, [] { forked = true; });
  std::atexit([] { exiting = true; });
  the_world = std::move(world).value().release();
  return CUDA_SUCCESS;
}

}  // namespace

CUresult init_process() {
  static std::mutex* mutex = new std::mutex;  // never destroyed: cuInit may come from anywhere
  static CUresult result = CUDA_ERROR_NOT_INITIALIZED;
  static bool tried = false;
  if (forked) return CUDA_ERROR_NOT_INITIALIZED;
  const std::lock_guard guard(*mutex);
  if (!tried) {
    tried = true;
    result = make_world();
  }
  return result;
}

World* world_of_process() {
  return forked.load(std::memory_order_relaxed) ? nullptr
                                                : the_world.load(std::memory_order_acquire);
}

// The destructors of keys run after those of thread_local objects: these may call the driver too.
ThreadState& this_thread() {
  static const pthread_key_t key = [] {
    pthread_key_t made = 0;
    const auto end = [](void* state) {
      delete static_cast<ThreadState*>(state);  // owner: the key
    };
    pthread_key_create(&made, end);
    return made;
  }();
  auto* state = static_cast<ThreadState*>(pthread_getspecific(key));
  if (state == nullptr) {
    state = new ThreadState{.number = ++threads, .contexts = {}};  // owner: the key
    pthread_setspecific(key, state);
  }
  return *state;
}

bool process_is_exiting() { return exiting; }

}  // namespace braid::emulator
