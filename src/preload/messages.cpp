#include "preload/messages.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "preload/descriptor.h"

namespace braid::preload {
namespace {

// Beyond so many different ones, messages are no longer said.
constexpr size_t kMostMessages = 64;

constinit std::array<std::atomic<uint64_t>, kMostMessages> all_said{};  // hashes; 0: a free place

// True for the first thread that says this.
bool is_new(std::string_view message) {
  const uint64_t hash = std::hash<std::string_view>{}(message) | 1;
  for (std::atomic<uint64_t>& said : all_said) {
    uint64_t before = 0;
    if (said.compare_exchange_strong(before, hash)) return true;
    if (before == hash) return false;
  }
  return false;
}

}  // namespace

void say_once(const char* message) noexcept try {
  if (!is_new(message)) return;
  const std::string line = std::string("braid: ") + message + "\n";
  Descriptor errors{STDERR_FILENO};
  write_to_descriptor(&errors, line.data(), line.size());
} catch (...) {
}

}  // namespace braid::preload
