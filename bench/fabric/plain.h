// A raw libfabric loop: one endpoint, writes with an immediate and delivery-complete, as a program
// would make them by hand. What braid's engine is held against.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "bench/fabric/load.h"
#include "fabric/ofi/quirks.h"

namespace braid::bench {

class Plain {
 public:
  struct Target {
    uint64_t base = 0;
    uint64_t key = 0;
  };

  /// Ends the process with a message if libfabric refuses: it is a measurement.
  explicit Plain(const fabric::ofi::Quirks& quirks);
  ~Plain();

  std::vector<std::byte> address() const;
  Target expose(std::span<std::byte> memory);
  void read_from(std::span<const std::byte> memory);
  void connect(const std::vector<std::byte>& address);

  /// All writes of the load, each page one, until all have completed.
  void write(const Target& target, const Load& load);
  /// The target's side: lets writes land. Returns how many immediates have come.
  uint64_t poll();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace braid::bench
