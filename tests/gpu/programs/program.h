// What the programs share whatever API they use: conditions, bytes that tell where they belong, and
// a count of the copies by kind. The programs are ordinary CUDA programs that know nothing of
// braid; tests/gpu/programs.py runs them natively and under it, compares what they print, and holds
// the counts against braid's statistics.
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

namespace program {

/// Of the copies by which a program looks at memory without trusting the copies it tests: far below
/// any threshold.
constexpr size_t kPieceBytes = size_t{512} << 10;

[[noreturn]] inline void fail(const std::string& why) {
  std::fprintf(stderr, "program: %s\n", why.c_str());
  std::_Exit(1);
}

inline void require(bool condition, const std::string& what) {
  if (!condition) fail(what);
}

/// What a copy is, as far as its caller can say. Keep in step with OUTCOMES in programs.py.
enum class Kind {
  kPinned,    ///< between pinned memory and a GPU's own memory, however that was allocated
  kSmall,     ///< of kPieceBytes or less
  kPageable,  ///< from or to memory that is not pinned
  kManaged,   ///< from or to managed memory
  kImported,  ///< from or to another process's memory
  kNarrow,    ///< of rows of a few bytes each
  kCaptured,  ///< recorded in a graph
};
inline constexpr const char* kKindNames[] = {"pinned",   "small",  "pageable", "managed",
                                             "imported", "narrow", "captured"};
inline constexpr size_t kKinds = sizeof kKindNames / sizeof *kKindNames;

struct Count {
  std::atomic<uint64_t> calls{0};
  std::atomic<uint64_t> bytes{0};
};
inline Count counts[kKinds];

inline void copied(Kind kind, uint64_t bytes, uint64_t calls = 1) {
  counts[static_cast<size_t>(kind)].calls += calls;
  counts[static_cast<size_t>(kind)].bytes += bytes;
}

/// The line that programs.py looks for. Each process that copies prints one, as its last words.
inline void print_counts() {
  std::printf("{\"copies\": {");
  const char* separator = "";
  for (size_t kind = 0; kind < kKinds; ++kind) {
    const uint64_t calls = counts[kind].calls.load();
    if (calls == 0) continue;
    std::printf("%s\"%s\": {\"calls\": %llu, \"bytes\": %llu}", separator, kKindNames[kind],
                static_cast<unsigned long long>(calls),
                static_cast<unsigned long long>(counts[kind].bytes.load()));
    separator = ", ";
  }
  std::printf("}}\n");
  std::fflush(stdout);
}

/// Bytes in which every eight tell the seed and their place, so that bytes of another copy, or of
/// another place of the same one, are found.
class Pattern {
 public:
  explicit Pattern(uint64_t seed) : seed_(seed * 0x9e3779b97f4a7c15u) {}

  void fill(void* to, size_t size_bytes) const {
    auto* bytes = static_cast<unsigned char*>(to);
    for (size_t at = 0; at < size_bytes; at += sizeof(uint64_t)) {
      const uint64_t word = word_at(at);
      std::memcpy(bytes + at, &word, length_at(at, size_bytes));
    }
  }

  /// `begins_at`: which part of the pattern `bytes` should hold.
  void check(const void* memory, size_t size_bytes, const std::string& what,
             size_t begins_at = 0) const {
    const auto* bytes = static_cast<const unsigned char*>(memory);
    for (size_t at = 0; at < size_bytes; at += sizeof(uint64_t)) {
      const uint64_t word = word_at(begins_at + at);
      if (std::memcmp(bytes + at, &word, length_at(at, size_bytes)) != 0)
        fail(what + ": wrong bytes from " + std::to_string(begins_at + at) + " on");
    }
  }

 private:
  uint64_t word_at(size_t at) const {
    uint64_t word = seed_ + at;
    word = (word ^ (word >> 31)) * 0xbf58476d1ce4e5b9u;
    return word ^ (word >> 29);
  }
  static size_t length_at(size_t at, size_t size_bytes) {
    return size_bytes - at < sizeof(uint64_t) ? size_bytes - at : sizeof(uint64_t);
  }

  uint64_t seed_;
};

/// The words by which streams are held back: pinned memory that the host writes.
inline void store(volatile uint32_t* word, uint32_t value) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  *word = value;
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

inline void sleep_ms(int milliseconds) { usleep(static_cast<useconds_t>(milliseconds) * 1000); }

/// The exit code of a child. One that does not end in `limit_s` is a failure, not a hang.
inline int exit_code_of(pid_t child, const std::string& what, int limit_s = 120) {
  int status = 0;
  for (int waited_ms = 0; waitpid(child, &status, WNOHANG) == 0; waited_ms += 5) {
    if (waited_ms > limit_s * 1000) {
      kill(child, SIGKILL);
      fail(what + " did not end");
    }
    sleep_ms(5);
  }
  require(WIFEXITED(status), what + " was ended by a signal");
  return WEXITSTATUS(status);
}

/// The first argument: bytes of each copy.
inline size_t size_argument(int argc, char** argv) {
  const size_t size_bytes = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 0;
  require(size_bytes >= (size_t{2} << 20), "usage: " + std::string(argv[0]) + " SIZE_BYTES");
  return size_bytes;
}

}  // namespace program
