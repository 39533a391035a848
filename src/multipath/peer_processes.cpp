#include "multipath/peer_processes.h"

#include <algorithm>

#include "base/fnv.h"

namespace braid::multipath {
namespace {

// A process that is stopped while it has the lock must not stop the others for ever.
constexpr std::chrono::seconds kLongestWait{10};

// Never 0.
uint64_t key_of(const CUuuid& uuid) { return fnv({uuid.bytes, sizeof uuid.bytes}) | 1; }

}  // namespace

PeerProcesses::PeerProcesses(const cuda::Driver& driver, const Options& options,
                             const RelayTopology& relays) {
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

void PeerProcesses::tell(int gpu, Direction direction, uint64_t size_bytes, uint64_t until_ns) {
  if (gpu < 0 || static_cast<size_t>(gpu) >= keys_.size()) return;
  LinkRow& link = row_->gpus[static_cast<size_t>(gpu)].links[static_cast<size_t>(direction)];
  link.size_bytes.store(size_bytes, std::memory_order_relaxed);
  link.until_ns.store(until_ns, std::memory_order_relaxed);
}

int PeerProcesses::gpu_of(uint64_t key) const {
  const auto found = std::find(keys_.begin(), keys_.end(), key);
  return found != keys_.end() ? static_cast<int>(found - keys_.begin()) : -1;
}

// Who has waited in vain once does not wait for each of its relays.
PeerProcesses::OpeningLock PeerProcesses::lock_opening() {
  locks_opening_ = locks_opening_ && table_ != nullptr && table_->lock_opening(kLongestWait);
  return OpeningLock(locks_opening_ ? table_.get() : nullptr);
}

PeerProcesses::OpeningLock::~OpeningLock() {
  if (table_ != nullptr) table_->unlock_opening();
}

}  // namespace braid::multipath
