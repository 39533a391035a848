// The registered memory of this process, as ranges with rights: host memory and GPU memory. Ranges
// never merge: an access lies within one of them, or is outside. Not synchronised.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "transfer/policy/tiers.h"
#include "transfer/types.h"

namespace braid::fabric::gpu {
class Lane;
}

namespace braid::transfer {

/// A rail that should reach a buffer and could not register it.
struct RailRefusal {
  size_t rail = 0;
  std::string why;
};
/// Which rails have registered a buffer.
struct Reached {
  uint64_t rails = 0;  ///< bits
  std::vector<RailRefusal> refusals;
};

struct Buffer {
  uint64_t id = 0;
  MutableBytes memory;
  Rights rights = kNoRights;
  bool is_stage = false;  ///< the engine's own: peers are not told of it
  Place place = {};
  std::shared_ptr<fabric::gpu::Lane> lane = nullptr;  ///< of GPU memory: the lane that copies there
  uint64_t rails = 0;                                 ///< bits: the rails that reach it
  std::vector<RailRefusal> refusals = {};

  uint64_t address() const { return reinterpret_cast<uint64_t>(memory.data()); }
};

class Buffers {
 public:
  /// Adds at least one byte of memory that overlaps no other buffer.
  Result<uint64_t> add(MutableBytes memory, Rights rights);
  /// The same for a buffer whose fields are set, except for its number.
  Result<uint64_t> add(Buffer buffer);
  void set_reached(uint64_t id, Reached reached);
  void remove(uint64_t id);
  const Buffer* find(uint64_t id) const;
  /// The buffer that holds all of these bytes; null: there is none.
  const Buffer* containing(uint64_t address, uint64_t size_bytes) const;
  /// All buffers except the engine's own, by address.
  std::vector<Buffer> all() const;
  size_t size() const { return by_address_.size() - stages_; }

 private:
  std::map<uint64_t, Buffer> by_address_;
  std::unordered_map<uint64_t, uint64_t> address_of_;  // by id
  uint64_t next_id_ = 1;
  size_t stages_ = 0;
};

/// Whether peers have this right there: kNone, kOutside or kNotAllowed. If they have it, `buffer`
/// is the buffer that holds the bytes.
Cause check(const Buffers& buffers, uint64_t address, uint64_t size_bytes, Rights right,
            const Buffer*& buffer);

}  // namespace braid::transfer
