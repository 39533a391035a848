// The memory of this process that is registered, as ranges with rights: of the host, and of GPUs.
// Ranges never merge: what is asked lies within one of them, or is outside. Not synchronised.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "transfer/policy/tiers.h"
#include "transfer/types.h"

namespace braid::fabric::gpu {
class Lane;
}

namespace braid::transfer {

struct Buffer {
  uint64_t id = 0;
  MutableBytes memory;
  Rights rights = kNoRights;
  bool is_stage = false;  ///< the engine's own: nobody is told of it
  Place place = {};
  std::shared_ptr<fabric::gpu::Lane> lane = nullptr;  ///< of GPU memory: what copies there
  uint64_t rails = 0;                                 ///< bits: those that reach it

  uint64_t address() const { return reinterpret_cast<uint64_t>(memory.data()); }
};

class Buffers {
 public:
  /// Of at least one byte, apart from all that are there.
  Result<uint64_t> add(MutableBytes memory, Rights rights);
  /// The same of a buffer that is described already, but for its number.
  Result<uint64_t> add(Buffer buffer);
  void set_rails(uint64_t id, uint64_t rails);
  void remove(uint64_t id);
  const Buffer* find(uint64_t id) const;
  /// The one that holds all of these bytes; null: none does.
  const Buffer* containing(uint64_t address, uint64_t size_bytes) const;
  /// By address, but the engine's own.
  std::vector<Buffer> all() const;
  size_t size() const { return by_address_.size() - stages_; }

 private:
  std::map<uint64_t, Buffer> by_address_;
  std::unordered_map<uint64_t, uint64_t> address_of_;  // by id
  uint64_t next_id_ = 1;
  size_t stages_ = 0;
};

/// Whether peers may do this there: kNone, kOutside or kNotAllowed. `buffer` is then the one.
Cause check(const Buffers& buffers, uint64_t address, uint64_t size_bytes, Rights right,
            const Buffer*& buffer);

}  // namespace braid::transfer
