#include "emulator/process/process.h"

#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <numeric>
#include <string>
#include <utility>

#include "emulator/errors.h"
#include "topology/profile.h"

namespace braid::emulator {
namespace {

std::atomic<World*> the_world{nullptr};
std::atomic<bool> forked{false};
std::atomic<bool> exiting{false};
std::atomic<uint64_t> threads{0};

// CUDA_VISIBLE_DEVICES: ordinals up to the first that does not exist, as CUDA reads it.
std::vector<int> visible_gpus(int count) {
  std::vector<int> visible(count);
  std::iota(visible.begin(), visible.end(), 0);
  const char* text = std::getenv("CUDA_VISIBLE_DEVICES");
  if (text == nullptr) return visible;
  visible.clear();
  for (const char* at = text; *at != '\0';) {
    char* end = nullptr;
    const long gpu = std::strtol(at, &end, 10);
    const bool again = std::find(visible.begin(), visible.end(), gpu) != visible.end();
    if (end == at || gpu < 0 || gpu >= count || again) break;
    visible.push_back(static_cast<int>(gpu));
    at = *end == ',' ? end + 1 : end;
    if (*end != ',' && *end != '\0') break;
  }
  return visible;
}

CUresult make_world() {
  const char* path = std::getenv("BRAID_SERVER");
  if (path == nullptr || *path == '\0') {
    say("no server to emulate: BRAID_SERVER is not set. Use `braid run --server PROFILE -- CMD`, "
        "or set BRAID_SERVER to the path of a profile");
    return CUDA_ERROR_NO_DEVICE;
  }
  auto server = topology::load_profile(path);
  if (!server.ok()) {
    say(server.status().message());
    return CUDA_ERROR_NO_DEVICE;
  }
  std::vector<int> visible = visible_gpus(static_cast<int>(server.value().gpus.size()));
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

ThreadState& this_thread() {
  thread_local ThreadState state;
  if (state.number == 0) state.number = ++threads;
  return state;
}

bool process_is_exiting() { return exiting; }

}  // namespace braid::emulator
