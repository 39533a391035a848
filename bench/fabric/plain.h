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
  Plain(Plain&&) noexcept;

  std::vector<std::byte> address() const;
  Target expose(std::span<std::byte> memory);
  void read_from(std::span<const std::byte> memory);
  /// The next peer: they are numbered from 0.
  void connect(const std::vector<std::byte>& address, const Target& target);

  /// All writes of the load, until all have completed. Part i of a scatter goes to peer i. So many
  /// pages that follow each other go in one posting, at most pages_of_posting.
  void write(const Load& load, uint64_t pages_at_once = 1);
  /// As many as braid's engine puts into one.
  uint64_t pages_of_posting(uint64_t page_bytes) const;
  /// Tells a peer by an immediate, with a byte of the source to the first of its target.
  void signal(size_t peer);
  /// Lets writes land. Returns how many immediates have come since the last call.
  uint64_t poll();

 private:
  struct State;
  void progress();
  bool post(size_t peer, std::span<const uint64_t> offsets_bytes, uint64_t size_bytes);

  std::unique_ptr<State> state_;
};

}  // namespace braid::bench
