// The process that braid and the raw loop write to, and what it shares with the one that writes.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <memory>
#include <span>

#include "bench/fabric/plain.h"
#include "fabric/engine.h"
#include "fabric/ofi/quirks.h"

namespace braid::bench {

/// Rails of an engine: their number, and what they are made of.
struct Rails {
  const fabric::ofi::Quirks* quirks = nullptr;
  int count = 1;
};

/// At 127.0.0.1, 127.0.0.2 and so on.
std::unique_ptr<fabric::Engine> open_engine(const Rails& rails);

class TargetProcess {
 public:
  enum class Serves { kNobody, kBraid, kPlain, kEnd };

  /// Forks: before libfabric is loaded, by a process of one thread.
  TargetProcess(const Rails& rails, std::span<std::byte> memory);
  ~TargetProcess();
  TargetProcess(const TargetProcess&) = delete;
  TargetProcess& operator=(const TargetProcess&) = delete;

  /// Returns once it does. Nobody: it leaves the processors to others.
  void serve(Serves whom);
  fabric::Address engine_address() const;
  /// Of the memory; known once the engine of this process has connected.
  std::optional<fabric::Descriptor> descriptor() const;
  std::vector<std::byte> plain_address() const;
  Plain::Target plain_target() const;

 private:
  struct Shared;
  [[noreturn]] static void run(const Rails& rails, Shared& shared, std::span<std::byte> memory);

  Shared* shared_;
  pid_t process_;
};

}  // namespace braid::bench
