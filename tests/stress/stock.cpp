#include "stress/stock.h"

#include <algorithm>

#include "stress/kernel.h"

namespace braid::stress {
namespace {

constexpr uint64_t kVictimBytes = 16 << 10;

uint64_t first_content(const Program& program, size_t region) { return program.seed * 64 + region; }

}  // namespace

CUresult Server::open(int gpu) {
  CUdevice device = 0;
  CUresult result = calls.get_device(&device, gpu);
  if (result == CUDA_SUCCESS) result = calls.retain_primary(&contexts[gpu], device);
  if (result != CUDA_SUCCESS) return result;
  use(gpu);
  CUmodule module = nullptr;
  result = calls.load_module(&module, mix_kernel_image(calls.is_emulated));
  if (result == CUDA_SUCCESS) result = calls.get_function(&kernels[gpu], module, kMixKernelName);
  return result;
}

CUresult Server::reset(int gpu) {
  CUdevice device = 0;
  CUresult result = calls.get_device(&device, gpu);
  if (result == CUDA_SUCCESS) result = calls.reset_primary(device);
  return result == CUDA_SUCCESS ? open(gpu) : result;
}

void Stock::make() {
  make_words();
  for (size_t region = 0; region < program_.regions.size(); ++region) {
    const Region& of = program_.regions[region];
    server_.use(of.gpu);
    Place& place = places_.emplace_back(Place{Memory(server_.calls, of), of.size_bytes});
    must(place.memory.allocate(), "allocating");
    must(place.memory.fill(first_content(program_, region)), "filling");
  }
  streams_.resize(program_.streams.size());
  for (size_t number = 0; number < streams_.size(); ++number)
    must(create_stream(static_cast<int>(number)), "creating a stream");
  for (const int gpu : program_.event_gpus) {
    server_.use(gpu);
    must(server_.calls.create_event(&events_.emplace_back(), CU_EVENT_DEFAULT),
         "creating an event");
  }
}

void Stock::make_words() {
  const Calls& calls = server_.calls;
  server_.use(0);
  void* words = nullptr;
  must(calls.pin(&words, (program_.event_gpus.size() + 1) * sizeof(uint32_t),
                 CU_MEMHOSTALLOC_PORTABLE),
       "words");
  words_ = static_cast<uint32_t*>(words);
  std::fill_n(words_, program_.event_gpus.size(), 0);
  void* victim = nullptr;
  must(calls.pin(&victim, kVictimBytes, CU_MEMHOSTALLOC_PORTABLE), "a victim");
  victim_ = {0, static_cast<uint8_t*>(victim), kVictimBytes};
  must(calls.allocate(&victim_.device, kVictimBytes), "a victim");
}

CUresult Stock::create_stream(int number) {
  const Stream& of = program_.streams[number];
  streams_[number] = of.flavour == Flavour::kLegacy ? CU_STREAM_LEGACY : CU_STREAM_PER_THREAD;
  if (of.is_default()) return CUDA_SUCCESS;
  server_.use(of.gpu);
  const unsigned flags =
      of.flavour == Flavour::kBlocking ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING;
  return server_.calls.create_stream(&streams_[number], flags,
                                     of.flavour == Flavour::kUrgent ? -3 : 0);
}

CUresult Stock::renew_stream(int number) {
  const CUresult result = server_.calls.destroy_stream(streams_[number]);
  return result == CUDA_SUCCESS ? create_stream(number) : result;
}

CUresult Stock::reset(int gpu) {
  if (const CUresult result = server_.reset(gpu); result != CUDA_SUCCESS) return result;
  if (gpu == 0) make_words();
  server_.use(gpu);
  for (size_t region = 0; region < places_.size(); ++region) {
    const Region& of = program_.regions[region];
    if (of.gpu != gpu || !of.ends_with_context()) continue;
    must(places_[region].memory.allocate(), "allocating again");
    must(places_[region].memory.fill(first_content(program_, region)), "filling again");
  }
  for (size_t number = 0; number < streams_.size(); ++number)
    if (program_.streams[number].gpu == gpu)
      must(create_stream(static_cast<int>(number)), "creating a stream again");
  for (size_t event = 0; event < events_.size(); ++event)
    if (program_.event_gpus[event] == gpu)
      must(server_.calls.create_event(&events_[event], CU_EVENT_DEFAULT),
           "creating an event again");
  return CUDA_SUCCESS;
}

uint64_t Stock::hash_memory() {
  uint64_t all = 0;
  for (size_t region = 0; region < places_.size(); ++region) {
    server_.use(program_.regions[region].gpu);
    uint64_t hash = 0;
    must(places_[region].memory.hash(hash), "reading back");
    all = mix(all, hash);
  }
  return all;
}

uint64_t Stock::hash_seen() const {
  uint64_t all = 0;
  for (const Place& place : places_) all = mix(all, place.seen);
  return all;
}

void Stock::end() {
  const Calls& calls = server_.calls;
  for (const CUevent event : events_) must(calls.destroy_event(event), "an event");
  for (size_t number = 0; number < streams_.size(); ++number)
    if (!program_.streams[number].is_default())
      must(calls.destroy_stream(streams_[number]), "a stream");
  for (size_t region = 0; region < places_.size(); ++region) {
    server_.use(program_.regions[region].gpu);
    must(places_[region].memory.free(), "freeing");
  }
  server_.use(0);
  must(calls.free(victim_.device), "freeing a victim");
  must(calls.unpin(victim_.host), "freeing a victim");
  must(calls.unpin(words_), "freeing the words");
}

}  // namespace braid::stress
