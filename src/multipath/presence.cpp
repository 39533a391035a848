#include "multipath/presence.h"

#include <algorithm>

namespace braid::multipath {
namespace {

// A process that is stopped while it has the turn must not stop the others for ever.
constexpr std::chrono::seconds kLongestTurn{10};

// FNV-1a; never 0.
uint64_t key_of(const CUuuid& uuid) {
  uint64_t key = 0xcbf29ce484222325;
  for (const char byte : uuid.bytes) key = (key ^ static_cast<uint8_t>(byte)) * 0x100000001b3;
  return key | 1;
}

}  // namespace

Presence::Presence(const cuda::Driver& driver, const Options& options, const Relays& relays) {
  if (!options.process_table.empty()) {
    auto table =
        ProcessTable::open(options.process_table == kUsualProcessTable ? ProcessTable::usual_name()
                                                                       : options.process_table);
    if (table.ok()) {
      table_ = std::move(table).value();
      char name[16];
      row_ = table_->claim(program_name(name));
      if (row_ == nullptr)
        problem_ = "too many processes of this host use braid to know of each other";
    } else {
      problem_ = table.status().message();
    }
  }
  if (row_ == nullptr) {
    table_.reset();
    private_row_ = std::make_unique<ProcessRow>();
    row_ = private_row_.get();
  }
  const int gpus = std::min(relays.gpu_count(), static_cast<int>(keys_.size()));
  for (int gpu = 0; gpu < gpus && driver.clock->is_common(); ++gpu) {
    CUuuid uuid{};
    if (driver.cuDeviceGetUuid(&uuid, relays.device(gpu)) != CUDA_SUCCESS) break;
    const auto index = static_cast<size_t>(gpu);
    keys_[index] = key_of(uuid);
    row_->gpus[index].key = keys_[index];
  }
}

void Presence::tell(int gpu, Direction direction, uint64_t size_bytes, uint64_t until_ns) {
  if (gpu < 0 || static_cast<size_t>(gpu) >= keys_.size()) return;
  LinkRow& link = row_->gpus[static_cast<size_t>(gpu)].links[static_cast<size_t>(direction)];
  link.size_bytes.store(size_bytes, std::memory_order_relaxed);
  link.until_ns.store(until_ns, std::memory_order_relaxed);
}

int Presence::gpu_of(uint64_t key) const {
  const auto found = std::find(keys_.begin(), keys_.end(), key);
  return found != keys_.end() ? static_cast<int>(found - keys_.begin()) : -1;
}

// Who has waited in vain once does not wait for each of its relays.
Presence::Turn Presence::take_turn() {
  takes_turns_ = takes_turns_ && table_ != nullptr && table_->take_turn(kLongestTurn);
  return Turn(takes_turns_ ? table_.get() : nullptr);
}

Presence::Turn::~Turn() {
  if (table_ != nullptr) table_->give_turn();
}

}  // namespace braid::multipath
