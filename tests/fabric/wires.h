// Two ends of every kind of wire that this machine has, for the tests that hold all of them to the
// same contract.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "fabric/domain.h"

namespace braid::fabric::test {

/// Memory that a wire writes from or into, wherever it lies.
class Memory {
 public:
  virtual ~Memory() = default;
  virtual MutableBytes bytes() = 0;
  virtual std::vector<std::byte> get() const = 0;
  virtual std::byte first() const { return get().front(); }
  virtual void put(const std::vector<std::byte>& bytes) = 0;
};

class Wire {
 public:
  virtual ~Wire() = default;
  /// A domain of one of two processes, or of one that stands for two.
  virtual std::unique_ptr<Domain> open(int side) = 0;
  /// Lets time pass, and others work, between two looks of the test.
  virtual void pass_time() = 0;
  virtual uint64_t now_ns() = 0;
  /// All zero. Of the process that writes, or of the one that is written to.
  virtual std::unique_ptr<Memory> memory(int side, size_t size_bytes);
  /// The same, of the host: buffers of messages.
  virtual std::unique_ptr<Memory> host_memory(int side, size_t size_bytes);
  /// Breaks the connections of a side's domain; `index` counts that side's domains. False: nothing
  /// breaks one here.
  virtual bool break_rail(int, int) { return false; }
  /// All but the first of the domain's endpoints. False: it has no others.
  virtual bool break_further_endpoints(int /*side*/, int /*index*/) { return false; }
  /// Peers can connect again, where they could not.
  virtual void mend_rail(int, int) {}
};

struct WireKind {
  std::string name;
  std::function<std::unique_ptr<Wire>()> make;
  bool is_fake = false;  ///< a provider of libfabric that no machine here has
  /// Between two looks of the test it may notice that a connection broke, and connect again.
  bool has_thread = false;
};

const std::vector<WireKind>& wire_kinds();
/// Those whose domains make progress in threads of their own (fabric/progress_thread.h).
const std::vector<WireKind>& threaded_wire_kinds();
/// Those where removing a region fences it.
const std::vector<WireKind>& fencing_wire_kinds();
/// Memory of a GPU that is mapped, and was not made to be shared; where there are GPUs.
std::unique_ptr<Memory> unshared_memory(size_t size_bytes);
/// Where nobody has GPUs: those that wire_kinds() gives there.
const std::vector<WireKind>& host_wire_kinds();

/// How long a test looks for what must come about. Looks are the time of a simulated wire; of
/// others they take next to none, and a thread that has work to do may not run for seconds.
class Patience {
 public:
  explicit Patience(int looks) : looks_(looks) {}
  /// Asked once for each look.
  bool is_over() { return --looks_ < 0 && std::chrono::steady_clock::now() > end_; }

 private:
  int looks_;
  const std::chrono::steady_clock::time_point end_ =
      std::chrono::steady_clock::now() + std::chrono::seconds(60);
};

inline std::string name_of_wire(const testing::TestParamInfo<WireKind>& kind) {
  return kind.param.name;
}
inline void PrintTo(const WireKind& kind, std::ostream* out) { *out << kind.name; }

inline std::vector<std::byte> some_bytes(size_t size_bytes, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(size_bytes);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

}  // namespace braid::fabric::test
