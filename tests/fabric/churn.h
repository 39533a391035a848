// What churn_test.cpp and its visitors (visitor.cpp) share: an order, and what each process holds.
#pragma once

#include <dirent.h>
#include <malloc.h>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "braid/fabric.h"
#include "support/server.h"

namespace braid::test {

inline constexpr size_t kVisitBytes = 4096;

/// What is written in a visit: on the host, or on a GPU of the emulated server.
class VisitMemory {
 public:
  explicit VisitMemory(bool is_gpu);
  std::byte* data() { return is_gpu_ ? reinterpret_cast<std::byte*>(buffer_->at()) : host_.data(); }
  std::vector<std::byte> get() const;
  void put(const std::vector<std::byte>& bytes);

 private:
  bool is_gpu_;
  std::vector<std::byte> host_;
  std::unique_ptr<DeviceBuffer> buffer_;
};

/// `local` takes GPU memory as it is.
inline Fabric::Options visit_options(const std::string& provider, bool is_gpu) {
  Fabric::Options options{provider, {"127.0.0.1"}};
  options.gpu_memory = is_gpu && provider != "local";
  return options;
}

/// Comes before the descriptor in a message.
struct VisitOrder {
  uint32_t number = 0;
  uint32_t immediate = 0;
};

inline std::byte byte_of_visit(uint32_t number, size_t place) {
  return static_cast<std::byte>((number * 131 + place * 31) >> 3);
}

/// What this process holds.
struct Holdings {
  int64_t descriptors = 0;
  int64_t threads = 0;
  int64_t mappings_of_shm = 0;  ///< also of what local processes share
  int64_t allocated_bytes = 0;  ///< as malloc says: nothing under a sanitizer, which looks itself

  static Holdings now() {
    const struct mallinfo2 memory = mallinfo2();
    return {entries_of("/proc/self/fd"), entries_of("/proc/self/task"), shm_mappings(),
            static_cast<int64_t>(memory.uordblks + memory.hblkhd)};
  }

  /// What has grown since; empty: nothing. malloc's own caches are some bytes that stay.
  std::string grown_since(const Holdings& before, int64_t visits, int64_t bytes_of_visit) const {
    constexpr int64_t kCacheBytes = 64 << 10;
    const int64_t bytes = allocated_bytes - before.allocated_bytes;
    std::string grown;
    const auto compare = [&](const char* what, int64_t now, int64_t then) {
      if (now > then) grown += std::to_string(now - then) + " more " + what + "; ";
    };
    compare("descriptors", descriptors, before.descriptors);
    compare("threads", threads, before.threads);
    compare("mappings of shared memory", mappings_of_shm, before.mappings_of_shm);
    compare("bytes allocated", bytes > kCacheBytes + visits * bytes_of_visit ? bytes : 0, 0);
    return grown;
  }

 private:
  static int64_t entries_of(const char* folder) {
    int64_t count = 0;
    DIR* opened = opendir(folder);
    while (readdir(opened) != nullptr) ++count;
    closedir(opened);
    return count;
  }
  static int64_t shm_mappings() {
    int64_t count = 0;
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);)
      count += line.find("/dev/shm/") != std::string::npos ||
               line.find("memfd:braid-") != std::string::npos;
    return count;
  }
};

}  // namespace braid::test
