#include "abi/call.h"

#include <pthread.h>

#include <atomic>
#include <cstring>
#include <utility>

#include "base/kept_by_thread.h"

namespace braid::abi {
namespace {

struct Failure {
  std::string message;
  int cuda_result = 0;
  int cause = 0;
};
std::atomic<int> forks = 0;

}  // namespace

braid_status report(braid_status code, std::string message, int cuda_result, int cause) {
  if (auto* last = kept_by_thread<Failure>()) *last = {std::move(message), cuda_result, cause};
  return code;
}

const char* last_error() {
  const auto* last = kept_by_thread<Failure>();
  return last != nullptr ? last->message.c_str()
                         : "the thread is ending: braid keeps no error for it any more";
}

int last_cuda_error() {
  const auto* last = kept_by_thread<Failure>();
  return last != nullptr ? last->cuda_result : 0;
}

int last_cause() {
  const auto* last = kept_by_thread<Failure>();
  return last != nullptr ? last->cause : 0;
}

// The forks since this process, or an ancestor of it, opened the first engine.
int Process::forks_so_far() {
  static const bool is_watched =
      pthread_atfork(nullptr, nullptr, [] { ++forks; }) == 0;  // in the child
  return is_watched ? forks.load() : 0;
}

braid_status hand_out(const void* bytes, size_t size_bytes, void* buffer, size_t buffer_bytes,
                      size_t* needed_bytes) {
  if (needed_bytes != nullptr) *needed_bytes = size_bytes;
  if (buffer == nullptr && buffer_bytes == 0) return BRAID_OK;
  if (buffer == nullptr || buffer_bytes < size_bytes)
    return report(BRAID_ERROR_ARGUMENT,
                  "the buffer is null, or smaller than " + std::to_string(size_bytes) + " bytes");
  std::memcpy(buffer, bytes, size_bytes);
  return BRAID_OK;
}

}  // namespace braid::abi
