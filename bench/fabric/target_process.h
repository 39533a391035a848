// The process that braid and the raw loop write to, and what it shares with the one that writes.
// It has an engine for each member of the group that takes part, one where there is no group.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <vector>

#include "bench/fabric/buffers.h"
#include "bench/fabric/load.h"
#include "bench/fabric/plain.h"
#include "fabric/engine.h"
#include "fabric/ofi/quirks.h"

namespace braid::bench {

/// Rails of an engine: their number, and what they are made of.
struct Rails {
  const fabric::ofi::Quirks* quirks = nullptr;  ///< of the raw loop, and of braid unless is_local
  int count = 1;
  bool is_local = false;  ///< braid's provider "local"; the raw loop takes shm
  const char* provider() const { return is_local ? "local" : quirks->provider; }
};

/// At 127.0.0.1, 127.0.0.2 and so on.
std::unique_ptr<fabric::Engine> open_engine(const Rails& rails);

/// By which the writing engine tells a member that it is at the barrier, and by which it is told.
inline constexpr uint32_t kBarrierThere = fabric::make_immediate(2, 0);
constexpr uint32_t barrier_here(size_t member) {
  return fabric::make_immediate(3 + static_cast<uint32_t>(member), 0);
}

struct TargetOptions {
  Rails rails;
  Pattern pattern = Pattern::kSingle;
  bool has_engine = false;  ///< each member has an engine without the library, and waits for a
                            ///< writing one to connect to it
};

class TargetProcess {
 public:
  enum class Serves { kNobody, kLibrary, kEngine, kPlain, kEnd };

  /// How a member is reached: by the library, by the engine in it alone, and by the raw loop.
  struct Member {
    std::vector<std::byte> fabric_address;
    std::vector<std::byte> engine_address;
    std::vector<std::byte> plain_address;
    Plain::Target plain_target;
  };

  /// Forks: before libfabric is loaded, by a process of one thread.
  TargetProcess(const TargetOptions& options, const Buffers& buffers);
  ~TargetProcess();
  TargetProcess(const TargetProcess&) = delete;
  TargetProcess& operator=(const TargetProcess&) = delete;

  size_t member_count() const;
  Member member(size_t index) const;
  /// Of the memory, for the engine of this process; known once that has connected.
  std::optional<fabric::Descriptor> descriptor(size_t member) const;
  /// How the members' raw loops reach the one of this process.
  void set_plain(const std::vector<std::byte>& address, const Plain::Target& target);

  /// Returns once it does. Nobody: it leaves the processors to others. Each member takes part in
  /// so many barriers more.
  void serve(Serves whom, uint64_t barriers = 0);
  /// Whether all members have been through all of them.
  bool are_barriers_over() const;

 private:
  struct Shared;
  class Server;

  Shared* shared_;
  pid_t process_;
};

}  // namespace braid::bench
