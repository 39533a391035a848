// Host twins of braid's kernels. Where no GPU can run device code, a twin carries out a launch: the
// same decisions in the same order, with one Block object for each thread block. The owner of
// virtual time advances it step by step. A twin moves no bytes itself: it names the bytes to move,
// and is asked again once they have moved, so that link models and access checks stay with the
// caller.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>

namespace braid::cuda {

/// Memory as the launching GPU sees it. The implementation checks each access; it records an access
/// on which the GPU would fault, which then returns 0 and changes nothing.
class TwinMemory {
 public:
  virtual ~TwinMemory() = default;
  virtual uint32_t load(uint64_t address) = 0;
  virtual void store(uint64_t address, uint32_t value) = 0;
  virtual uint32_t fetch_add(uint64_t address, uint32_t value) = 0;  ///< returns the old value
  virtual void add(uint64_t address, uint32_t value) = 0;  ///< does not wait for the addition
  /// One wide load: `size_bytes` at a time, a multiple of 4. Zeros where the GPU would fault.
  virtual void read(uint64_t address, void* to, uint64_t size_bytes) = 0;
  virtual uint64_t now_ns() const = 0;  ///< the GPU's timer

  /// Word by word.
  template <typename Value>
  void write(uint64_t address, const Value& value) {
    static_assert(sizeof(Value) % sizeof(uint32_t) == 0);
    std::array<uint32_t, sizeof(Value) / sizeof(uint32_t)> words;
    std::memcpy(words.data(), &value, sizeof(Value));
    for (size_t i = 0; i < words.size(); ++i) store(address + i * sizeof(uint32_t), words[i]);
  }
};

/// What a block does next.
struct TwinStep {
  enum class Kind {
    kMove,  ///< copy size_bytes from source to destination, then step again
    kPoll,  ///< a poll of memory found nothing to do: step again after one poll interval
    kExit,  ///< the block has left; do not step again
    kTrap,  ///< the block has failed on purpose: a sticky error of its context
  };
  Kind kind = Kind::kExit;
  uint64_t source = 0;
  uint64_t destination = 0;
  uint64_t size_bytes = 0;
  uint64_t wake_ns = 0;   ///< kPoll: work is due at this time; 0: none
  bool overlaps = false;  ///< kMove: the step's accesses overlap the move and each other
};

class TwinBlock {
 public:
  virtual ~TwinBlock() = default;
  /// Called first when the block becomes resident, then after each step has taken its time.
  virtual TwinStep step(TwinMemory& memory) = 0;
};

struct Twin {
  const char* name;   ///< the kernel's name, as cuModuleGetFunction is asked for it
  size_t args_bytes;  ///< size of its one by-value argument
  std::unique_ptr<TwinBlock> (*make_block)(const void* args, uint32_t block_index);
};

/// All of braid's kernels that have a twin.
std::span<const Twin> twins();

/// A module of twins, for cuModuleLoadData of the emulated driver: a program written for that
/// driver brings kernels of its own this way. Both live as long as the process.
struct TwinImage {
  static constexpr uint64_t kMagic = 0x736e697774646962;  // "bidtwins"
  uint64_t magic = kMagic;
  const Twin* twins = nullptr;
  size_t count = 0;
};

}  // namespace braid::cuda
